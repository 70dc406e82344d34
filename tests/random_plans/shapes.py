"""What the operations that move elements do to a leaf, and to its twins, in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.random_plans import twins
from tests.random_plans.model import Fields, Leaf, Path, Refused, Slot, State, Words, printed
from tests.random_plans.optimizers import FACTORED_FROM
from tests.random_plans.patterns import select
from tests.random_plans.world import World

Move = Callable[[Any], Any]
"""The move of one array."""


def _transpose(edit: Fields, shape: tuple[int, ...]) -> Move:
    axes = edit.get("axes") or range(len(shape))[::-1]
    return lambda x: np.transpose(x, axes)


def _reshape(edit: Fields, shape: tuple[int, ...]) -> Move:
    axis = edit.get("axis")
    if axis is None:
        return lambda x: np.reshape(x, edit["shape"])
    axes = axis if isinstance(axis, list) else [axis]
    part = np.zeros(shape[axes[0] : axes[-1] + 1]).reshape(edit["shape"]).shape
    return lambda x: np.reshape(x, (*shape[: axes[0]], *part, *shape[axes[-1] + 1 :]))


def _squeeze(edit: Fields, shape: tuple[int, ...]) -> Move:
    axis = edit.get("axis")
    return lambda x: np.squeeze(x, tuple(axis) if isinstance(axis, list) else axis)


def _expand(edit: Fields, shape: tuple[int, ...]) -> Move:
    return lambda x: np.expand_dims(x, edit["axis"])


def _permute(edit: Fields, shape: tuple[int, ...]) -> Move:
    index, axis = edit["index"], edit.get("axis", 0)
    if sorted(index) != list(range(shape[axis])):
        raise ValueError("no order")
    return lambda x: np.take(x, index, axis)


def _slice(edit: Fields, shape: tuple[int, ...]) -> Move:
    parts = tuple(_one_slice(text) for text in edit["slices"].split(","))
    if not np.zeros(shape)[parts].size and np.prod(shape):
        raise ValueError("nothing is left")
    return lambda x: x[parts]


def _one_slice(text: str) -> Any:
    if text.strip() == "...":
        return Ellipsis
    return slice(*(int(part) if part else None for part in re.split(r"\s*:\s*", text.strip())))


def _pad(edit: Fields, shape: tuple[int, ...]) -> Move:
    axis = edit["axis"]
    widths = [(0, 0)] * len(shape)
    widths[axis] = (edit.get("before", 0), edit.get("after", 0))
    if widths[axis] == (0, 0):
        raise ValueError("nothing is asked for")
    return lambda x, fill=edit.get("value", 0.0): (
        np.pad(x.astype("float64"), widths, mode="mean")
        if fill is None
        else np.pad(x, widths, constant_values=np.asarray(fill).astype(x.dtype))
    )


def _resize(edit: Fields, shape: tuple[int, ...]) -> Move:
    axis = edit["axis"] if "axis" in edit else shape.index(edit["old_size"])
    more = edit["size"] - shape[axis]
    how = {"fill": edit.get("fill", "mean"), "value": edit.get("value")}

    def move(x: Any, **asked: Any) -> Any:
        if more <= 0:
            return np.take(x, range(edit["size"]), axis)
        fill = asked.get("fill", how["fill"])
        if fill == "repeat":
            return np.take(x, [n % shape[axis] for n in range(edit["size"])], axis)
        if fill in (None, "mean"):
            if x.dtype.kind in "biu" or not x.size:
                raise ValueError("no mean")
            wide = x.astype("complex128" if x.dtype.kind == "c" else "float64")
            end = wide.mean(axis, keepdims=True).repeat(more, axis)
        else:
            number = how["value"] if fill == "constant" else 0.0
            if x.dtype.kind in "biu" and number % 1:
                raise ValueError("no such number")
            end = np.full([*x.shape[:axis], more, *x.shape[axis + 1 :]], number)
        return np.concatenate([x, end.astype(x.dtype)], axis)

    return move


def _repeat(edit: Fields, shape: tuple[int, ...]) -> Move:
    times, axis = edit["times"], edit["axis"]
    if edit.get("new_axis"):
        return lambda x: np.stack([x] * times, axis)
    if edit.get("order") == "tiled":
        return lambda x: np.concatenate([x] * times, axis)
    if not shape:
        raise ValueError("no axes")
    return lambda x: np.repeat(x, times, axis)


def _interpolate(edit: Fields, shape: tuple[int, ...]) -> Move:
    old, new, axis = shape[edit["axis"]], edit["size"], edit["axis"]
    if not old:
        raise ValueError("no places")
    at = np.linspace(0, old - 1, new) if new > 1 else np.zeros(1)
    low = np.floor(at + 1e-9).astype(int)
    share = np.where(at - low < 1e-9, 0, at - low).reshape(-1, *(1,) * (len(shape) - axis - 1))

    def move(x: Any) -> Any:
        if x.dtype.kind in "biu" or x.dtype.name.startswith(("int", "uint")):
            raise ValueError("no floats")
        wide = x.astype("complex128" if x.dtype.kind == "c" else "float64")
        with np.errstate(all="ignore"):
            below, above = (wide.take(np.minimum(low + n, old - 1), axis) for n in (0, 1))
            found = np.where(share == 0, below, below * (1 - share) + above * share)
            return x if old == new else found.astype(x.dtype)

    return move


_MOVES: dict[str, Callable[[Fields, tuple[int, ...]], Move]] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand": _expand,
    "permute": _permute,
    "slice": _slice,
    "pad": _pad,
    "resize": _resize,
    "repeat": _repeat,
    "interpolate-positions": _interpolate,
}


def _rearrange(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    before = state.copy()
    for path in selected:
        leaf = state.leaves[path]
        new = _moved(leaf, path, edit)
        is_sum = edit["op"] == "interpolate-positions" or (
            edit["op"] == "resize" and edit.get("fill", "mean") == "mean"
        )
        if is_sum and new.shape != np.asarray(leaf.value).shape and not np.all(new):
            state.may[1] = f"a mean of '{printed(path)}' may be too small for its dtype"
        state.leaves[path] = leaf.with_value(new, ulps=2 * is_sum, known=leaf.known)
    if any(path in state.slots for path in selected):
        state.may[2] = "a twin alone need not mirror its param any more"
    usual = "warm" if edit["op"] == "interpolate-positions" else "transform"
    policy = edit.get("optimizer") or edit.get("_plan_optimizer") or usual
    moved = [path for path in selected if not _is_left_alone(before.leaves[path], edit)]
    slots = twins.slots_of(state, moved) + _placeholders(state, moved)
    if policy == "keep" and usual == "warm":
        state.may[2] = "slots cannot keep their shape"
        if slots:
            raise Refused(2, "slots cannot keep their shape")
    for slot in slots:
        _follow(state, before, slot, edit, policy, words)


def _is_left_alone(leaf: Leaf, edit: Fields) -> bool:
    """A squeeze of a leaf without axes of size 1 is no edit of it, so that nothing follows, whatever the policy."""
    return edit["op"] == "squeeze" and "axis" not in edit and 1 not in leaf.shape


def _moved(leaf: Leaf, path: Path, edit: Fields, **fields: Any) -> np.ndarray:
    if not leaf.dtype or leaf.is_python:
        raise Refused(2, f"'{printed(path)}' is no array")
    if edit["op"] == "pad" and leaf.is_integer and edit.get("value", 0) % 1:
        raise Refused(2, f"'{printed(path)}' holds no such number")
    value = np.asarray(leaf.value)
    try:
        return np.asarray(_MOVES[edit["op"]](edit, value.shape)(value, **fields))
    except (ValueError, IndexError, TypeError) as error:
        raise Refused(2, f"'{printed(path)}': {error}") from None


def _placeholders(state: State, selected: list[Path]) -> list[Slot]:
    """Where Adafactor keeps nothing: it may, of another shape."""
    return [
        slot
        for slot in state.slots.values()
        if slot.param in selected and slot.path not in selected and slot.relation == "one"
    ]


def _follow(
    state: State, before: State, slot: Slot, edit: Fields, policy: str, words: Words
) -> None:
    leaf = before.leaves[slot.path]
    if slot.relation in ("one", "factored"):
        _factored(state, before, slot, edit, policy)
        return
    is_new = edit["op"] in ("pad", "resize")
    fields = {"fill": None if slot.is_second else 0.0} if is_new else {}
    new = _moved(leaf, slot.path, edit, **fields).astype(leaf.dtype)
    mean = slot.is_second and (is_new or edit["op"] == "interpolate-positions")
    state.leaves[slot.path] = leaf.with_value(new, ulps=2 if mean else 0, known=leaf.known)
    second = twins.has_second(state, slot)
    if words(slot.path) == "keep" and policy == "reset":
        return
    if policy == "reset" or (policy == "warm" and not (second and slot.is_second)):
        twins.fresh(state, slot)


def _factored(state: State, before: State, slot: Slot, edit: Fields, policy: str) -> None:
    """Of a transpose, which keeps both axes; others are not drawn where a moment is factored."""
    param = before.leaves[slot.param]
    shape = state.leaves[slot.param].shape
    if slot.relation == "one" and edit["op"] == "transpose":
        return
    if edit["op"] != "transpose" or len(shape) != len(param.shape):
        state.may[2] = "how a factored moment follows is held elsewhere"
        raise Refused(2, "not modelled")
    order = np.argsort(shape)
    assert shape[order[-2]] >= FACTORED_FROM
    parts = {s.path[len(s.node) - 1]: s for s in state.slots.values() if s.param == slot.param}
    row, column = (np.asarray(before.leaves[parts[n].path].value) for n in ("v_row", "v_col"))
    axes = np.argsort(param.shape)[[-1, -2]]
    kept = {"v_row": row, "v_col": column}
    moved = {}
    turn = list(edit.get("axes") or range(len(shape))[::-1])
    turn = [axis % len(shape) for axis in turn]
    for (name, value), axis in zip(kept.items(), axes, strict=True):
        rest = [n - (n > axis) for n in turn if n != axis]
        moved[turn.index(axis)] = (name, np.transpose(value, rest))
    mine = slot.path[len(slot.node) - 1]
    axis = order[-1] if mine == "v_row" else order[-2]
    leaf = before.leaves[slot.path]
    state.leaves[slot.path] = leaf.with_value(moved[int(axis)][1], known=leaf.known)
    if policy == "reset":
        twins.fresh(state, slot)


OPERATIONS = dict.fromkeys(_MOVES, _rearrange)
