"""Two runs on one batch, side by side: the outputs decide, the calls explain."""

from __future__ import annotations

from typing import Any

from surgery_cli import reports
from surgery_cli.probe.comparing import Deviation, Run, compare_runs, default_tolerance
from surgery_cli.probe.gradients import Gradients
from surgery_cli.probe.pairing import Half, pair
from surgery_cli.surgery.probing.run import Probed
from surgery_cli.surgery.probing.session import Session
from surgery_cli.surgery.records import read_record


def compare_probed(a: Probed, b: Probed, tolerance: float | None) -> reports.ProbeComparison:
    """Two runs, call by call and by their outputs; ``tolerance`` is relative, None for that of the dtypes."""
    pairs = pair(a.wanted, b.wanted, _renames(a.session, b.session))
    deviations, outputs = compare_runs(
        Run(a.session.trace, a.variables), Run(b.session.trace, b.variables),
        a.session.call.arrays, pairs,
    )  # fmt: skip
    if tolerance is None:
        tolerance = default_tolerance(
            [
                str(v.dtype)
                for probed in (a, b)
                for v in [*probed.variables.values(), *probed.forward.outputs]
            ]
        )
    rows = [
        _pair_row(halves, found, a.gradients, b.gradients)
        for halves, found in zip(pairs.both, deviations, strict=True)
    ]
    out_rows = [
        reports.ProbePair(
            a=f"output {number + 1}",
            b=f"output {number + 1}",
            shape=tuple(a.forward.outputs[number].shape),
            dtype=str(a.forward.outputs[number].dtype),
            **_fields(found),
        )
        for number, found in enumerate(outputs or [])
    ]
    agrees, why = _verdict(a, b, outputs, tolerance)
    first = next((row for row in rows if not row.relative <= tolerance), None)
    return reports.ProbeComparison(
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
        other_first_non_finite=b.first,
    )


def _verdict(
    a: Probed, b: Probed, outputs: list[Deviation] | None, tolerance: float
) -> tuple[bool, str]:
    """Whether the outputs agree, and a sentence that says why."""
    if outputs is None:
        shapes = [", ".join(str(o.shape) for o in p.forward.outputs) for p in (a, b)]
        return False, f"the outputs have other shapes: {shapes[0]} and {shapes[1]}"
    if not outputs:
        return False, "there is no output to compare"
    worst = max(found.relative for found in outputs)
    largest = max(found.max_abs for found in outputs)
    if worst == 0:
        return True, "the outputs are equal, bit for bit in float32"
    word = "agree" if worst <= tolerance else "differ"
    return (
        worst <= tolerance,
        f"the outputs {word}: {worst:.3g} apart, at most {largest:.3g} in a value",
    )


def _pair_row(
    halves: tuple[Half, Half], found: Deviation, a: Gradients | None, b: Gradients | None
) -> reports.ProbePair:
    left, right = halves
    return reports.ProbePair(
        a=left.name,
        b=right.name,
        kind=left.site.label.kind,
        shape=left.site.shape,
        dtype=str(left.site.dtype),
        gradient_rms_a=_gradient_rms(left, a),
        gradient_rms_b=_gradient_rms(right, b),
        **_fields(found),
    )


def _gradient_rms(half: Half, found: Gradients | None) -> float | None:
    measured = found.sites.get(half.site.point.position) if found is not None else None
    return measured.rms if measured is not None and half.iteration is None else None


def _fields(found: Deviation) -> dict[str, Any]:
    return {
        "relative": found.relative,
        "max_abs": found.max_abs,
        "rms_a": found.rms_a,
        "rms_b": found.rms_b,
    }


def _renames(a: Session, b: Session) -> dict[str, str]:
    """Paths of modules of ``a`` and their names in ``b``, by the plan that either's ``surgery.json`` records."""
    found: dict[str, str] = {}
    for edited, is_b in ((b, True), (a, False)):
        record = read_record(edited.checkpoint)
        for leaf in record.leaves if record is not None else ():
            new, old = leaf.get("path"), leaf.get("from")
            if not isinstance(new, str) or not isinstance(old, str) or new == old:
                continue
            moved = _module(old, a if is_b else b), _module(new, edited)
            if all(moved):
                found.setdefault(*(moved if is_b else moved[::-1]))
    return found


def _module(leaf: str, session: Session) -> str:
    """The path of the module that holds a leaf of the params; '' for a leaf outside of them."""
    for place in map(str, session.binding.places.values()):
        if not place or leaf.startswith(f"{place}/"):
            return leaf.removeprefix(f"{place}/").removesuffix("/value").rpartition("/")[0]
    return ""
