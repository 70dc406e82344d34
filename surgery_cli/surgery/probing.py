"""Probe: run the user's model on a checkpoint and a batch, and look inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from surgery_cli import reports
from surgery_cli.compute.devices import choose_device, parse_device
from surgery_cli.errors import SurgeryError
from surgery_cli.probe.binding import PARAMS, Binding, bind
from surgery_cli.probe.calls import Call, Collections, Model
from surgery_cli.probe.calls import Path as VariablePath
from surgery_cli.probe.first_bad import FirstBad, Operation, first_bad
from surgery_cli.probe.forward import (
    Forward,
    Seen,
    Site,
    is_observable,
    run_forward,
    sites_of,
    used_slots,
)
from surgery_cli.probe.inputs import Input, read_inputs
from surgery_cli.probe.models import Trace, make_model, trace
from surgery_cli.probe.nnx_model import NnxModel
from surgery_cli.probe.statistics import Measured
from surgery_cli.probe.user_code import UserObject, load_object
from surgery_cli.store.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.probe_options import ProbeOptions
from surgery_cli.tree.paths import LeafPath, PathPattern, nearest
from surgery_cli.tree.specs import LeafKind

Slot = tuple[str, VariablePath]


class Session(msgspec.Struct, frozen=True):
    """A checkpoint with a model bound to it: everything that is known before a tensor is read."""

    checkpoint: Checkpoint
    user: UserObject
    model: Model
    call: Call
    inputs: list[Input]
    binding: Binding
    expected: Collections
    trace: Trace
    sites: list[Site]

    def read(self) -> tuple[dict[Slot, Any], int]:
        """The variables that the computation needs, and the bytes that were read for them."""
        import jax

        needed = used_slots(self.trace)
        values: dict[Slot, Any] = {}
        read = 0
        missing: dict[str, dict[VariablePath, Any]] = {}
        for name, path in needed:
            leaf = self.binding.leaves.get((name, path))
            if leaf is None:
                missing.setdefault(name, {})[path] = None
                continue
            spec = self.checkpoint.tree[leaf]
            value = np.asarray(self.checkpoint.read(leaf))
            read += spec.bytes
            is_key = spec.kind is LeafKind.KEY
            values[name, path] = (
                jax.random.wrap_key_data(value, impl=spec.key_impl) if is_key else value
            )
        if missing:
            assert isinstance(self.model, NnxModel)
            made = self.model.made_by_factory(missing)
            values.update({(n, p): v for n, paths in made.items() for p, v in paths.items()})
        return values, read


def probe(
    checkpoint: str,
    *,
    model: str,
    inputs: tuple[str, ...],
    options: ProbeOptions = ProbeOptions(),
    say: Callable[[str], None] = lambda _: None,
) -> reports.Probe:
    """See ``surgery.probe``."""
    import jax

    platform, index = parse_device("cpu" if options.device == "host" else options.device)
    with jax.default_device(choose_device(platform, index)):
        session = open_session(checkpoint, model, inputs, options, say)
        wanted = chosen_sites(session.sites, options)
        if options.shapes:
            return _document(session, wanted, {}, None, 0, 0)
        variables, bytes_read = session.read()
        found = run_forward(
            session.trace,
            variables,
            session.call.arrays,
            shown={s.point.position for s in wanted},
        )
        bad = first_bad(session.trace, found, variables, session.call.arrays)
        first = _first_non_finite(session, found, bad) if bad is not None else None
        return _document(session, wanted, found.seen, first, len(variables), bytes_read)


def open_session(
    checkpoint: str,
    model: str,
    inputs: tuple[str, ...],
    options: ProbeOptions,
    say: Callable[[str], None],
) -> Session:
    """Import the model, bind it to the checkpoint and trace the call; from metadata and shapes alone.

    Raises:
        Misfit: the model does not fit the checkpoint.
        SurgeryError: anything that the command got wrong, or the user's code raises.
    """
    opened = open_checkpoint(checkpoint, step=options.step, item=options.item)
    given = read_inputs(inputs, seed=options.seed)
    user = load_object(model, say=say)
    made = make_model(
        user,
        given,
        static=options.call,
        run=options.run,
        methods=options.methods,
        vmap_axis=options.vmap_axis,
        seed=options.seed,
        streams=options.streams,
    )
    expected = user.run(made.collections)
    named = dict(options.bind)
    if options.params is not None:
        holder = next((name for name in PARAMS if name in expected), "params")
        named[holder] = options.params
    binding = bind(opened.tree, expected, named, is_part=bool(options.run))
    stored = binding.as_stored(expected, opened.tree)
    traced = trace(made, user, stored, made.call)
    if options.until:
        traced = _stopped(traced, options.until)
    return Session(opened, user, made, made.call, given, binding, stored, traced, sites_of(traced))


def _stopped(traced: Trace, text: str) -> Trace:
    """The trace up to the first output of a call; ``PATH:in`` stops before it, at its input."""
    from surgery_cli.probe.replay import until

    place, _, inward = text.partition(":")
    role = "in" if inward == "in" else "out"
    sites = [s for s in sites_of(traced) if s.label.role == role]
    found = next((s for s in sites if place in (s.label.text, s.label.path)), None)
    if found is None:
        names = list(dict.fromkeys(s.label.text for s in sites))
        near = nearest(place, names, 1)
        raise SurgeryError(
            f"no call '{place}' to stop at",
            why="there are " + ", ".join(f"'{n}'" for n in names[:12]),
            fix=f"did you mean `--until {near[0]}`?" if near else "",
            field="until",
        )
    last = [
        s
        for s in sites
        if s.label.path == found.label.path and s.label.method == found.label.method and s.call == 1
    ][-1]
    cut = until(traced.closed, last.point.position)
    if cut is None:
        raise SurgeryError(
            f"'{place}' stands inside a loop, a branch or a compiled part of the model",
            fix=f"see its values with `--at {place}`; the run can only stop between calls outside of these",
            field="until",
        )
    return msgspec.structs.replace(traced, closed=cut)


def chosen_sites(sites: list[Site], options: ProbeOptions) -> list[Site]:
    """The outputs, sown and perturbed values that the filters name; without filters, those of ``__call__``.

    Raises:
        SurgeryError: a filter names nothing.
    """
    shown = [s for s in sites if s.label.role != "in"]
    methods = options.methods or ("__call__", *([options.run] if options.run else []))
    found = shown
    if not options.methods:
        found = [s for s in found if s.label.role != "out" or s.label.method in methods]
    else:
        found = [
            s
            for s in found
            if s.label.role == "out" and ("*" in methods or s.label.method in methods)
        ]
        _refuse_nothing(
            found, "calls", methods, [s.label.method for s in shown if s.label.role == "out"]
        )
    if options.only:
        found = [s for s in found if s.label.kind in options.only]
        _refuse_nothing(found, "only", options.only, [s.label.kind for s in shown])
    if options.at:
        patterns = [PathPattern(text) for text in options.at]
        found = [s for s in found if any(_names(p, s) for p in patterns)]
        _refuse_nothing(found, "at", options.at, [s.label.text for s in shown])
    return found


def _names(pattern: PathPattern, site: Site) -> bool:
    keys = LeafPath(site.label.path.split("/") if site.label.path else ())
    if site.label.role != "out":
        keys = keys / (site.label.method,)
    return pattern.match(keys) is not None if keys else pattern.text in (".", "**")


def _refuse_nothing(
    found: list[Site], field: str, wanted: tuple[str, ...], there: list[str]
) -> None:
    if not found:
        names = list(dict.fromkeys(there))
        raise SurgeryError(
            f"`--{field} {' '.join(wanted)}` leaves no call to show",
            why="there are " + ", ".join(f"'{n}'" for n in names[:12]),
            field=field,
        )


def _document(
    session: Session,
    wanted: list[Site],
    seen: dict[int, Seen],
    first: reports.FirstNonFinite | None,
    leaves: int,
    read: int,
) -> reports.Probe:
    binding = session.binding
    notes = []
    if binding.made:
        notes.append(
            f"{len(binding.made)} random states that the checkpoint does not have were made by the model"
        )
    if binding.unused:
        names = ", ".join(f"'{p}'" for p in binding.unused[:5])
        more = f" and {len(binding.unused) - 5} more" if len(binding.unused) > 5 else ""
        notes.append(f"the model does not ask for {names}{more}")
    return reports.Probe(
        checkpoint=str(session.checkpoint.location.root),
        chosen=session.checkpoint.location.chosen,
        model=f"{session.user.spec.file}:{session.user.spec.name}",
        inputs=[i.text for i in session.inputs],
        bound={name: str(place) or "." for name, place in binding.places.items()},
        sites=[_row(site, seen.get(site.point.position)) for site in wanted if is_observable(site)],
        first_non_finite=first,
        unseen=[
            f"{site.name} {site.label.kind}, inside a `{site.point.hidden_in}`"
            for site in wanted
            if site.point.hidden_in
        ],
        notes=notes,
        leaves_read=leaves,
        bytes_read=read,
    )


def _row(site: Site, seen: Seen | None) -> reports.ProbeSite:
    label = site.label
    return reports.ProbeSite(
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


def statistics_of(found: Measured | None) -> reports.ProbeStatistics | None:
    """The document of a measurement."""
    if found is None:
        return None
    return reports.ProbeStatistics(
        mean=found.mean,
        std=found.std,
        min=found.min,
        max=found.max,
        rms=found.rms,
        zeros=found.zero_share,
        nan=found.nan,
        inf=found.inf,
    )


def _first_non_finite(session: Session, found: Forward, bad: FirstBad) -> reports.FirstNonFinite:
    leaves = [
        f"{session.binding.leaves.get(slot, LeafPath((slot[0], *slot[1])))}: {_counts(*count)}"
        for slot, count in found.bad_variables.items()
    ]
    inputs = [f"input {at + 1}: {_counts(*count)}" for at, count in found.bad_inputs.items()]
    site = bad.site
    return reports.FirstNonFinite(
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


def _operation(found: Operation | None) -> reports.ProbeOperation | None:
    if found is None:
        return None
    return reports.ProbeOperation(
        name=found.name,
        result=found.result,
        line=found.line,
        iteration=found.iteration,
        from_bad=found.from_bad,
    )
