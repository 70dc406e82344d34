"""Two runs on one batch, side by side: the outputs decide, the calls explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from surgery_cli.probing.interface import documents
from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.trace.comparing import (
    Deviation,
    OutputDeviation,
    Run,
    compare_gradients,
    compare_runs,
    default_tolerance,
)
from surgery_cli.probing.trace.gradients import Gradients, can_have_gradient
from surgery_cli.probing.trace.pairing import Half, Pairs, pair
from surgery_cli.probing.use_case.gradient_rows import trained_params
from surgery_cli.probing.use_case.running import Probed
from surgery_cli.probing.use_case.session import Session
from surgery_cli.proof.on_record import read_record

_PARAM: Final = "param"


def compare_probed(
    a: Probed,
    b: Probed,
    tolerance: float | None,
    loss: Callable[[Any], Any] | None = None,
) -> documents.ProbeComparison:
    """Two runs, call by call and by their outputs, and by the gradients of ``loss`` if there is one.

    ``tolerance`` is relative, None for that of the dtypes.
    """
    renames = _renames(a.session, b.session)
    pairs = pair(a.wanted, b.wanted, renames)
    sides = Run(a.session.trace, a.variables), Run(b.session.trace, b.variables)
    if tolerance is None:
        tolerance = default_tolerance(
            [
                str(v.dtype)
                for probed in (a, b)
                for v in [*probed.variables.values(), *probed.forward.outputs]
            ]
        )
    deviations, outputs = compare_runs(*sides, a.session.call.arrays, pairs, tolerance)
    rows = [
        _site_row(
            (left, right),
            found,
            gradient_rms_a=_gradient_rms(left, a.gradients),
            gradient_rms_b=_gradient_rms(right, b.gradients),
        )
        for (left, right), found in zip(pairs.both, deviations, strict=True)
    ]
    numbered = enumerate(zip(a.forward.outputs, outputs or [], strict=False), 1)
    out_rows = [
        _row(f"output {n}", f"output {n}", value, found, moved=found.moved)
        for n, (value, found) in numbered
    ]
    agrees, why = _verdict(a, b, outputs, tolerance)
    first = next((row for row in rows if not row.relative <= tolerance), None)
    gradients = [] if loss is None else _gradient_rows(a, b, sides, pairs, renames, loss)
    bad = next((r for r in gradients if r.kind != _PARAM and not r.relative <= tolerance), None)
    return documents.ProbeComparison(
        other=str(b.session.checkpoint.location.root),
        other_model=b.session.user.name,
        other_bound={n: str(p) or "." for n, p in b.session.binding.places.items()},
        tolerance=tolerance,
        agrees=agrees,
        why=why,
        outputs=out_rows,
        sites=rows,
        first_different=first.a if first is not None else None,
        only_in_a=[half.name for half in pairs.only_in_a],
        only_in_b=[half.name for half in pairs.only_in_b],
        gradients=gradients,
        first_different_gradient=bad.a if bad is not None else None,
        other_first_non_finite=b.first,
    )


def _verdict(
    a: Probed, b: Probed, outputs: list[OutputDeviation] | None, tolerance: float
) -> tuple[bool, str]:
    """Whether the outputs agree, and a sentence that says why."""
    if outputs is None:
        shapes = [", ".join(str(o.shape) for o in p.forward.outputs) for p in (a, b)]
        return False, f"the outputs have other shapes: {shapes[0]} and {shapes[1]}"
    if not outputs or not any(output.size for output in a.forward.outputs):
        return False, "there is no output to compare" + (": all are empty" if outputs else "")
    worst = max(found.relative for found in outputs)
    largest = max(found.max_abs for found in outputs)
    if worst == 0:
        return True, "the outputs are equal, bit for bit in float32"
    apart = f"{worst:.3g} apart, at most {largest:.3g} in a value"
    if not worst <= tolerance:
        return False, f"the outputs differ: {apart}"
    moved, size = sum(found.moved for found in outputs), sum(found.size for found in outputs)
    of_themselves = (
        f"{moved:,} of {size:,} values moved by more than {outputs[0].move:.0%} of themselves"
    )
    if any(found.hides_a_change for found in outputs):
        return False, f"the outputs differ where they are small: {apart}, but {of_themselves}"
    return True, f"the outputs agree: {apart}" + (f"; {of_themselves}" if moved else "")


def _row(
    a: str, b: str, value: Any, found: Deviation, kind: str = "", **more: Any
) -> documents.ProbePair:
    """How far two arrays are apart; ``value`` is that of ``a``, or what has its shape and dtype."""
    return documents.ProbePair(
        a=a,
        b=b,
        kind=kind,
        shape=tuple(value.shape),
        dtype=str(value.dtype),
        relative=found.relative,
        max_abs=found.max_abs,
        rms_a=found.rms_a,
        rms_b=found.rms_b,
        **more,
    )


def _site_row(halves: tuple[Half, Half], found: Deviation, **more: Any) -> documents.ProbePair:
    left, right = halves
    return _row(left.name, right.name, left.site, found, left.site.label.kind, **more)


def _gradient_rows(
    a: Probed,
    b: Probed,
    sides: tuple[Run, Run],
    pairs: Pairs,
    renames: Mapping[str, str],
    loss: Callable[[Any], Any],
) -> list[documents.ProbePair]:
    """A row for each pair of calls in the order of the backward pass, then for each pair of params."""
    both = [
        halves for halves in reversed(pairs.both) if all(can_have_gradient(h.site) for h in halves)
    ]
    slots = list(_paired_params(a, b, renames))
    at_calls, of_params = a.session.user.run(
        compare_gradients, *sides, a.session.call.arrays, loss, both, slots
    )
    leaves = a.session.binding.leaves, b.session.binding.leaves
    rows = [_site_row(halves, found) for halves, found in zip(both, at_calls, strict=True)]
    return rows + [
        _row(str(leaves[0][left]), str(leaves[1][right]), a.variables[left], found, _PARAM)
        for (left, right), found in zip(slots, of_params, strict=True)
    ]


def _paired_params(a: Probed, b: Probed, renames: Mapping[str, str]) -> Iterator[tuple[Slot, Slot]]:
    """Params of both sides by name, or by the renamed path of their module; those of other shapes have no pair."""
    for slot in trained_params(a):
        collection, path = slot
        module = "/".join(path[:-1])
        moved = (*renames.get(module, module).split("/"), path[-1]) if path[:-1] else path
        other = next((s for s in (slot, (collection, moved)) if s in b.variables), None)
        if other is not None and a.variables[slot].shape == b.variables[other].shape:
            yield slot, other


def _gradient_rms(half: Half, found: Gradients | None) -> float | None:
    measured = found.sites.get(half.site.point.position) if found is not None else None
    return measured.rms if measured is not None and half.iteration is None else None


def _renames(a: Session, b: Session) -> dict[str, str]:
    """Paths of modules of ``a`` and their names in ``b``, by the plan that either's ``surgery.json`` records."""
    found: dict[str, str] = {}
    for edited, is_b in ((b, True), (a, False)):
        record = read_record(edited.checkpoint)
        for leaf in record.leaves if record is not None else ():
            if leaf.from_ is None or leaf.path == leaf.from_:
                continue
            moved = _module(leaf.from_, a if is_b else b), _module(leaf.path, edited)
            if all(moved):
                found.setdefault(*(moved if is_b else moved[::-1]))
    return found


def _module(leaf: str, session: Session) -> str:
    """The path of the module that holds a leaf of the params; '' for a leaf outside of them."""
    for place in map(str, session.binding.places.values()):
        if not place or leaf.startswith(f"{place}/"):
            return leaf.removeprefix(f"{place}/").removesuffix("/value").rpartition("/")[0]
    return ""
