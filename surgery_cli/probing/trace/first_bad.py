"""The first place where a value stops being finite: the module, the iteration, the operation and the user's line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.model.models import Trace
from surgery_cli.probing.model.sites import label_of
from surgery_cli.probing.trace.forward import Forward, Site, arguments, by_slot
from surgery_cli.probing.trace.points import Point, is_opened, points, size
from surgery_cli.probing.trace.replay import Replay
from surgery_cli.probing.trace.statistics import bad_counts, is_numeric
from surgery_cli.script.user_errors import is_user_file, source_line
from surgery_cli.words.quantities import array_text


class Operation(msgspec.Struct, frozen=True):
    """An equation that gives bad values.

    ``line`` is ``file:line: source`` of the user's code; '' if it has no part in it.
    ``from_bad``: an operand was bad already, as ``nan`` or ``inf``; '' if all were finite.
    """

    name: str
    result: str
    line: str
    iteration: tuple[int, ...]
    from_bad: str = ""


class FirstBad(msgspec.Struct, frozen=True):
    """Where the first bad value is seen, and where it arises.

    ``site`` is the first tag with a bad value. ``operation`` is the first equation that gives one; ``origin`` an
    earlier one whose infinities it turned into NaN.
    """

    site: Site | None
    iteration: tuple[int, ...]
    nan: int
    inf: int
    operation: Operation | None
    origin: Operation | None


def first_bad(
    trace: Trace,
    found: Forward,
    variables: dict[Slot, Any],
    arrays: Sequence[Any],
) -> FirstBad | None:
    """The first bad place of a run; None if there is none.

    NaN counts everywhere. Infinities count at the outputs of modules alone: inside, masks are made of them.
    """
    events = []
    for seen in found.seen.values():
        bad = _is_bad(seen.site, seen.counts)
        events += [
            (seen.site.point.order(iteration), iteration, seen)
            for iteration in map(tuple, np.argwhere(bad & seen.ran))
        ]
    if not events:
        if all(np.isfinite(o).all() for o in found.outputs if o.dtype.kind in "fc"):
            return None
        operation, origin = _operations(trace, 0, size(trace.closed.jaxpr), True, variables, arrays)
        return FirstBad(None, (), 0, 0, operation, origin)
    _, iteration, seen = min(events, key=lambda event: event[0])
    nan, inf = (int(c) for c in seen.counts[iteration])
    start, end = _region(trace, seen.site.point)
    operation, origin = _operations(
        trace, start, end, nan > 0, variables, arrays, tuple(map(int, iteration))
    )
    return FirstBad(seen.site, tuple(map(int, iteration)), nan, inf, operation, origin)


def _is_bad(site: Site, counts: np.ndarray) -> Any:
    nan, inf = counts[..., 0] > 0, counts[..., 1] > 0
    return nan | inf if site.label.role == "out" else nan


def _region(trace: Trace, point: Point) -> tuple[int, int]:
    """From the last tag before, to this one; a whole loop, as the cause may lie in an earlier iteration."""
    start, end = point.position, point.position + 1
    loops = [scope.position for scope in point.scopes if scope.length]
    before = 0
    for other in points(trace.closed.jaxpr):
        if loops and other.position == loops[0]:
            start, end = loops[0], loops[0] + 1 + size(other.equation.params["jaxpr"].jaxpr)
            return before, end
        if other.position >= start:
            break
        if label_of(other.equation) is not None and not other.scopes:
            before = other.position
    return before, end


def _operations(
    trace: Trace,
    start: int,
    end: int,
    is_nan: bool,
    variables: dict[Slot, Any],
    arrays: Sequence[Any],
    iteration: tuple[int, ...] = (),
) -> tuple[Operation | None, Operation | None]:
    """The first equation between two positions that gives NaN (or infinities), and what made infinities in it.

    ``iteration`` is the one in which the bad value was seen. If the first bad value in it is made there, of good ones,
    that is the cause: an earlier iteration may have made some that a mask threw away.
    """
    wanted = [
        p
        for p in points(trace.closed.jaxpr)
        if start <= p.position < end and not p.hidden_in and _is_plain(p)
    ]

    def observe(_: Point, inputs: list[Any], outputs: list[Any], __: Any) -> tuple[list[Any], Any]:
        return outputs, (_worst(inputs), _worst(outputs))

    replay = Replay(wanted, observe)

    def run(held: dict[str, Any], inputs: list[Any]) -> Any:
        return replay(trace.closed, arguments(trace, held, inputs))[1]

    seen = jax.device_get(jax.jit(run)(by_slot(variables), list(arrays)))
    by_position = {p.position: p for p in wanted}
    nan: list[Any] = []
    inf: list[Any] = []
    for at, (ran, (before, after)) in seen.items():
        point = by_position[at]
        for column, events in ((0, nan), (1, inf)):
            bad = np.asarray(after)[..., column].astype(bool) & np.asarray(ran)
            if column == 1:  # an infinity that went in is no news when it comes out
                bad &= ~np.asarray(before)[..., 1].astype(bool)
            events += [
                (point.order(tuple(i)), tuple(map(int, i)), point, np.asarray(before)[tuple(i)])
                for i in np.argwhere(bad)
            ]
    inf.sort(key=lambda event: event[0])
    nan.sort(key=lambda event: event[0])
    if iteration:
        nan, inf = (_since(iteration, events) for events in (nan, inf))
    if not is_nan:
        return (_operation(inf[0], trace.folder) if inf else None), None
    if not nan:
        return None, None
    first = nan[0]
    origin = next((e for e in inf if e[0] < first[0]), None) if first[3][1] else None
    return _operation(first, trace.folder), _operation(origin, trace.folder) if origin else None


def _since(iteration: tuple[int, ...], events: list[Any]) -> list[Any]:
    """The events of an iteration, if the first of them comes from good values; else all."""
    own = [event for event in events if event[1][: len(iteration)] == iteration]
    return own if own and not own[0][3].any() else events


def _is_plain(point: Point) -> bool:
    """True for equations that compute: not for tags, nor for those that hold others and are opened."""
    return label_of(point.equation) is None and not is_opened(point.equation)


def _worst(values: list[Any]) -> Any:
    total = jnp.zeros(2, bool)
    for value in values:
        if hasattr(value, "dtype") and is_numeric(value.dtype):
            total |= bad_counts(value) > 0
        elif isinstance(value, float):
            total |= jnp.array([np.isnan(value), np.isinf(value)])
    return total


def _operation(event: Any, folder: FilePath) -> Operation:
    _, iteration, point, before = event
    aval = point.equation.outvars[0].aval
    from_bad = "nan" if before[0] else "inf" if before[1] else ""
    return Operation(
        point.equation.primitive.name,
        array_text(aval.dtype, aval.shape),
        user_line(point.equation, folder),
        iteration,
        from_bad,
    )


def user_line(equation: Any, folder: FilePath) -> str:
    """``file:line: source`` of the user's line that the equation comes from."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if is_user_file(frame.file_name, folder):
            return source_line(frame.file_name, frame.line_num)
    return ""
