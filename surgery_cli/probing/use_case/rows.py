"""What was found by a probe, as the documents that are printed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from surgery_cli.probing.interface import documents
from surgery_cli.probing.trace.first_bad import FirstBad, Operation
from surgery_cli.probing.trace.forward import Forward, Seen, Site, is_observable
from surgery_cli.probing.trace.statistics import Measured
from surgery_cli.probing.use_case.session import Session
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage


def document(
    session: Session, wanted: list[Site], seen: dict[int, Seen], more: Sequence[Note] = ()
) -> documents.Probe:
    """A row for each wanted site, with the statistics of those that were seen, and what is known of the session.

    ``more`` are notes besides those on the session itself.
    """
    binding = session.binding
    notes: list[Note] = []
    if session.members:
        notes.append(
            Remark(
                DocsPage.PROBE_PARTS,
                f"an ensemble of {session.members} on the same inputs: a row shows all members, and iterations are"
                " members",
            )
        )
    if binding.made:
        notes.append(
            Remark(
                DocsPage.PROBE_INPUTS,
                f"{len(binding.made)} random states that the checkpoint does not have were made by the model",
            )
        )
    if binding.unused:
        notes.append(
            Remark(DocsPage.PROBE_INPUTS, f"the model does not ask for {quoted(binding.unused, 5)}")
        )
    return documents.Probe(
        checkpoint=str(session.checkpoint.location.root),
        chosen=session.checkpoint.location.chosen,
        assumptions=assumed_steps(session.checkpoint),
        model=session.user.name,
        inputs=[i.text for i in session.inputs],
        bound={name: str(place) or "." for name, place in binding.places.items()},
        sites=[_row(site, seen.get(site.point.position)) for site in wanted if is_observable(site)],
        unseen=[
            f"{site.name} {site.label.kind}, inside a `{site.point.hidden_in}`"
            for site in wanted
            if site.point.hidden_in
        ],
        notes=[*notes, *more],
    )


def _row(site: Site, seen: Seen | None) -> documents.ProbeSite:
    label = site.label
    return documents.ProbeSite(
        path=label.path or ".",
        kind=label.kind,
        method=label.method,
        role=label.role,
        leaf=label.leaf,
        call=site.call,
        shape=site.shape,
        dtype=str(site.dtype),
        iterations=site.point.lengths,
        ran=int(seen.ran.sum()) if seen is not None else 1,
        statistics=statistics_of(seen.measured) if seen is not None else None,
        name=site.name,
    )


def statistics_of(found: Measured | None) -> documents.ProbeStatistics | None:
    """The document of a measurement."""
    if found is None:
        return None
    fields = msgspec.convert(found, documents.ProbeStatistics, from_attributes=True)
    return msgspec.structs.replace(fields, zeros=found.zero_share)


def first_non_finite(session: Session, found: Forward, bad: FirstBad) -> documents.FirstNonFinite:
    leaves = [
        f"{session.binding.leaves.get(slot, LeafPath((slot[0], *slot[1])))}: {_counts(*count)}"
        for slot, count in found.bad_variables.items()
    ]
    call = session.call
    names = [*call.names, *(f"input {n + 1}" for n in range(len(call.names), len(call.positional)))]
    names += call.named
    inputs = [f"{names[at]}: {_counts(*count)}" for at, count in found.bad_inputs.items()]
    site = bad.site
    return documents.FirstNonFinite(
        where=site.name if site is not None else "after the last call",
        kind=site.label.kind if site is not None else "",
        role=site.label.role if site is not None else "out",
        iteration=bad.iteration,
        nan=bad.nan,
        inf=bad.inf,
        operation=_operation(bad.operation),
        origin=_operation(bad.origin),
        bad_leaves=leaves,
        bad_inputs=inputs,
    )


def _counts(nan: int, inf: int) -> str:
    return ", ".join(
        f"{count} {name}" for count, name in ((nan, "NaN"), (inf, "infinite")) if count
    )


def _operation(found: Operation | None) -> documents.ProbeOperation | None:
    return msgspec.convert(found, documents.ProbeOperation | None, from_attributes=True)
