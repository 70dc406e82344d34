"""Probe: run the user's model on a checkpoint and a batch, look inside, and compare two runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli import reports
from surgery_cli.compute.devices import choose_device, parse_device
from surgery_cli.errors import SurgeryError
from surgery_cli.probe.comparing import Deviation, Run, compare_runs, default_tolerance
from surgery_cli.probe.first_bad import first_bad
from surgery_cli.probe.forward import Forward, Site, is_observable, run_forward
from surgery_cli.probe.gradients import (
    Gradients,
    can_have_gradient,
    checked_scalar,
    random_projection,
    run_gradients,
)
from surgery_cli.probe.pairing import Half, pair
from surgery_cli.probe.statistics import Measured
from surgery_cli.probe.user_code import UserObject, load_object, parameters_of
from surgery_cli.surgery.probe_documents import document, first_non_finite, statistics_of
from surgery_cli.surgery.probe_files import check_files, draw_probe, save_values
from surgery_cli.surgery.probe_options import ProbeOptions
from surgery_cli.surgery.probe_session import Session, Slot, chosen_sites, open_session
from surgery_cli.surgery.records import read_record

_EXPLODING: Final = 1e3
"""A gradient that is this many times the median of all is marked."""


class Probed(msgspec.Struct, frozen=True):
    """A session that has run."""

    session: Session
    wanted: list[Site]
    variables: dict[Slot, Any]
    bytes_read: int
    forward: Forward
    first: reports.FirstNonFinite | None
    gradients: Gradients | None


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

    _check(options)
    platform, index = parse_device("cpu" if options.device == "host" else options.device)
    with jax.default_device(choose_device(platform, index)):
        user = load_object(model, say=say)
        session = open_session(checkpoint, user, inputs, options)
        wanted = chosen_sites(session.sites, options)
        if options.shapes:
            return document(session, wanted, {})
        check_files(options, session)
        loss = _loss(session, options, say)
        probed = run_session(session, wanted, loss, is_kept=options.save is not None)
        found = document(session, wanted, probed.forward.seen)
        _add_gradients(found, probed)
        found = msgspec.structs.replace(
            found,
            first_non_finite=probed.first,
            leaves_read=len(probed.variables),
            bytes_read=probed.bytes_read,
        )
        if options.against is not None:
            found = msgspec.structs.replace(
                found, comparison=_against(probed, user, inputs, options, loss, say)
            )
        return _with_files(found, probed, options)


def _against(
    probed: Probed,
    user: UserObject,
    inputs: tuple[str, ...],
    options: ProbeOptions,
    loss: Callable[[Any], Any] | None,
    say: Callable[[str], None],
) -> reports.ProbeComparison:
    """The same call on the other checkpoint, of the other model if one is named."""
    assert options.against is not None
    other_user = user if options.model_b is None else load_object(options.model_b, say=say)
    # `--step` chooses in the first checkpoint; the other one says its own as `CKPT@N`
    settings = msgspec.structs.replace(options, step=None)
    other = open_session(options.against, other_user, inputs, settings)
    second = run_session(other, chosen_sites(other.sites, settings), loss)
    return compare_probed(probed, second, options.tolerance)


def _with_files(found: reports.Probe, probed: Probed, options: ProbeOptions) -> reports.Probe:
    """Write what was asked for, and name it in the document."""
    files = []
    if options.save is not None:
        values = {
            seen.site.name: seen.values
            for seen in probed.forward.seen.values()
            if seen.values is not None
        }
        if probed.gradients is not None:
            names = {s.point.position: s.name for s in probed.wanted}
            values |= {f"gradient:{names[at]}": v for at, v in probed.gradients.values.items()}
            leaves = probed.session.binding.leaves
            of_variables = probed.gradients.variable_values
            values |= {f"gradient:{leaves[s]}": v for s, v in of_variables.items() if s in leaves}
        save_values(Path(options.save), values)
        files.append(options.save)
    if options.plot is not None:
        draw_probe(Path(options.plot), found)
        files.append(options.plot)
    return msgspec.structs.replace(found, files=files)


def _check(options: ProbeOptions) -> None:
    """Refuse options that mean nothing together."""
    alone = [
        (options.loss is not None and not options.grad, "--loss", "--grad"),
        (options.model_b is not None and options.against is None, "--model-b", "--against"),
        (options.tolerance is not None and options.against is None, "--tolerance", "--against"),
    ]
    for is_alone, name, needed in alone:
        if is_alone:
            raise SurgeryError(f"`{name}` says something only together with `{needed}`")
    if options.shapes and (options.grad or options.against is not None):
        raise SurgeryError(
            "`--shapes` reads no tensor, so there is nothing to differentiate or compare",
            fix="leave it out",
        )


def run_session(
    session: Session,
    wanted: list[Site],
    loss: Callable[[Any], Any] | None,
    *,
    is_kept: bool = False,
) -> Probed:
    """Run forwards, and backwards from a loss; ``is_kept`` keeps every value of the wanted sites."""
    variables, bytes_read = session.read()
    arrays = session.call.arrays
    shown = {s.point.position for s in wanted if is_observable(s)}
    kept = shown if is_kept else ()
    forward = run_forward(session.trace, variables, arrays, shown=shown, captured=kept)
    bad = first_bad(session.trace, forward, variables, arrays)
    first = first_non_finite(session, forward, bad) if bad is not None else None
    gradients = None
    if loss is not None:
        gradients = session.user.run(run_gradients, session.trace, variables, arrays, loss)
        if is_kept:
            reached = {s.point.position for s in wanted if can_have_gradient(s)}
            whole = session.user.run(
                run_gradients, session.trace, variables, arrays, loss, captured=reached
            )
            gradients = msgspec.structs.replace(
                gradients, values=whole.values, variable_values=whole.variable_values
            )
        first = first or _first_bad_gradient(session, gradients)
    return Probed(session, wanted, variables, bytes_read, forward, first, gradients)


def _loss(
    session: Session, options: ProbeOptions, say: Callable[[str], None]
) -> Callable[[Any], Any] | None:
    """The loss as a function of the output alone; None without ``--grad``."""
    if not options.grad:
        return None
    if options.loss is None:
        return random_projection(options.seed)
    user = load_object(options.loss, say=say)
    function = user.call() if user.spec.is_call else user.value
    known = session.call.by_name
    parameters = parameters_of(function)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {n: v for n, v in known.items() if takes_any or n in parameters}
    missing = [
        name
        for number, (name, p) in enumerate(parameters.items())
        if number
        and p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and name not in named
    ]
    if missing:
        raise SurgeryError(
            f"the loss '{user.spec.name}' needs '{missing[0]}'",
            why=f"it is called as {user.spec.name}(output, {', '.join(f'{n}={n}' for n in known) or '…'})",
            fix=f"give it as an input: `--input {missing[0]}=…`",
            field="loss",
        )
    return lambda output: checked_scalar(user.run(function, output, **named))


def _first_bad_gradient(session: Session, found: Gradients) -> reports.FirstNonFinite | None:
    """The place where the backward pass meets its first bad gradient: the last in the order of execution."""
    for site in reversed(session.sites):
        measured = found.sites.get(site.point.position)
        if measured is not None and measured.non_finite:
            return reports.FirstNonFinite(
                where=site.name,
                kind=site.label.kind,
                role="gradient",
                nan=measured.nan,
                inf=measured.inf,
            )
    bad = [slot for slot, measured in found.variables.items() if measured.non_finite]
    if not bad:
        return None
    measured = found.variables[bad[-1]]
    where = str(session.binding.leaves[bad[-1]])
    return reports.FirstNonFinite(where=where, role="gradient", nan=measured.nan, inf=measured.inf)


def _add_gradients(found: reports.Probe, probed: Probed) -> None:
    """Put the gradients beside the activations, and mark what is dead or exploding."""
    gradients = probed.gradients
    if gradients is None:
        return
    by_name = {s.name: gradients.sites.get(s.point.position) for s in probed.wanted}
    shown = [m for m in by_name.values() if m is not None]
    for row in found.sites:
        measured = by_name.get(row.name)
        if measured is not None and row.ran:
            row.gradient = statistics_of(measured)
            row.marks += _marks(measured, shown)
    found.loss = gradients.loss
    of_params = list(gradients.variables.values())
    for slot, measured in gradients.variables.items():
        gradient = statistics_of(measured)
        if slot not in probed.session.binding.leaves or gradient is None:
            continue
        value = probed.variables[slot]
        found.params.append(
            reports.ProbeParam(
                path=str(probed.session.binding.leaves[slot]),
                shape=tuple(value.shape),
                dtype=str(value.dtype),
                gradient=gradient,
                marks=_marks(measured, of_params),
            )
        )


def _marks(measured: Measured, others: list[Measured]) -> list[str]:
    if measured.non_finite:
        return ["exploding"]
    if measured.zeros == measured.size:
        return ["dead"]
    sizes = [m.rms for m in others if m.rms > 0 and not m.non_finite]
    if sizes and measured.rms > _EXPLODING * statistics.median(sizes):
        return ["exploding"]
    return []


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
