"""What the operations do that make one leaf of several, or several of one, and their twins, in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.random_plans import places, twins
from tests.random_plans.model import (
    Fields,
    Leaf,
    Path,
    Refused,
    Slot,
    State,
    Words,
    is_below,
    printed,
)
from tests.random_plans.patterns import patterns_of, select
from tests.random_plans.world import World

Join = Callable[[Sequence[np.ndarray]], np.ndarray]
Part = Callable[[np.ndarray], np.ndarray]


def stack(state: State, edit: Fields, world: World, words: Words) -> None:
    def together(values: Sequence[np.ndarray]) -> np.ndarray:
        if not all(value.shape == values[0].shape for value in values):
            raise Refused(2, "not of one shape")
        return np.stack(values, edit.get("axis", 0))

    _joined(state, edit, words, together)


def _joined(state: State, edit: Fields, words: Words, join: Join) -> None:
    """The leaves that the patterns name one by one become one."""
    source = list(state.leaves)
    selected = select(state, edit, skips_empties=False)
    _refuse_clocks(state, selected)
    patterns = patterns_of(edit["at"])
    groups: dict[Path, list[Path]] = {}
    for pattern in patterns:
        for leaf in (path for path in selected if pattern.names(path)):
            node = pattern.nodes(leaf)[-1]
            goal = places._target(edit["to"], node, pattern, state)
            groups.setdefault((*goal, *leaf[len(node) :]), []).append(leaf)
    if len(patterns) < 2 or any(len(set(g)) < len(patterns) for g in groups.values()):
        raise Refused(2, "nothing to join, or something is missing")
    before = state.copy()
    parts = [leaf for group in groups.values() for leaf in group]
    if any(state.leaves[leaf].dtype and not state.leaves[leaf].shape for leaf in parts):
        state.may[2] = "a number without axes may be one of Python's own"
    if any(new in state.leaves and new not in parts for new in groups):
        raise Refused(2, "something stands there")
    moves = {group[0]: new for new, group in groups.items()}
    places._refuse_torn(state, selected, edit)
    places._say_merges(state, moves)
    places._say_newcomers(state, moves)
    origins = _twin_groups(state, groups)
    carried = {**places._twin_moves(state, moves, copying=False), **moves}
    gone = {path for group in (*groups.values(), *origins.values()) for path in group[1:]}
    state.leaves = {path: leaf for path, leaf in state.leaves.items() if path not in gone}
    state.slots = {path: slot for path, slot in state.slots.items() if path not in gone}
    places._rekey(state, carried)
    policy = edit.get("optimizer") or edit.get("_plan_optimizer") or "transform"
    for new, group in groups.items():
        state.leaves[new] = _together([before.leaves[path] for path in group], join)
    for new, group in origins.items():
        slot = state.slots[new]
        if slot.relation != "hole":
            state.leaves[new] = _together([before.leaves[path] for path in group], join)
            state.restarted -= {new} if not before.restarted.issuperset(group) else set()
            _by_policy(state, slot, policy, words)
    touched = places._lists_of([*carried, *gone]) | places._lists_of(carried.values())
    places._closed(state, touched, moves.values())
    places._check_items(state)
    places._check_names(state, state.leaves, source)


def _together(leaves: Sequence[Leaf], join: Join) -> Leaf:
    if not all(leaf.dtype and not leaf.is_python for leaf in leaves):
        raise Refused(2, "no array")
    if len({leaf.dtype for leaf in leaves}) > 1:
        raise Refused(2, "not of one dtype")
    try:
        value = join([np.asarray(leaf.value) for leaf in leaves])
    except (ValueError, IndexError) as error:
        raise Refused(2, str(error)) from None
    known = all(leaf.known for leaf in leaves)
    worst = max(leaves, key=lambda leaf: leaf.ulps)
    joined = frozenset(home for leaf in leaves for home in (leaf.home, *leaf.joined) if home)
    kind = type(leaves[0].value)
    value = value if kind is np.ndarray else kind_of(leaves[0].value, value)
    return replace(
        leaves[0].with_value(value, known=known),
        ulps=worst.ulps,
        narrowest=worst.narrowest,
        joined=joined,
    )


def kind_of(like: Any, value: np.ndarray) -> Any:
    import jax

    return jax.numpy.asarray(value) if isinstance(like, jax.Array) else value


def _refuse_clocks(state: State, selected: Sequence[Path]) -> None:
    for path in selected:
        if path in state.clocks:
            raise Refused(2, "a count of the optimizer's")
        if path not in state.slots and (state.holds_optimizer(path) or "step" in map(str, path)):
            state.may[2] = "it may be a count"


def _twin_groups(state: State, groups: Mapping[Path, Sequence[Path]]) -> dict[Path, list[Path]]:
    """The same of the twins; those of all parts must be alike."""
    found: dict[Path, list[Path]] = {}
    for new, group in groups.items():
        kept = [_kept(state, path) for path in group]
        if any(one != kept[0] for one in kept):
            raise Refused(2, "the optimizer treats them differently")
        for slot in [s for s in state.slots.values() if s.param == group[0]]:
            if slot.path in state.leaves and is_below(new, slot.root):
                found[slot.place_for(new)] = [slot.place_for(path) for path in group]
    return found


def _kept(state: State, param: Path) -> set[tuple[Path, bool]]:
    return {
        (slot.node, slot.relation == "hole")
        for slot in state.slots.values()
        if slot.path in state.leaves and is_below(param, slot.param)
    }


def _by_policy(state: State, slot: Slot, policy: str, words: Words) -> None:
    if words(slot.path) == "keep" and policy == "reset":
        return
    second = twins.has_second(state, slot)
    if policy == "reset" or (policy == "warm" and not (second and slot.is_second)):
        twins.fresh(state, slot)


def unstack(state: State, edit: Fields, world: World, words: Words) -> None:
    def apart(value: np.ndarray, count: int) -> list[np.ndarray]:
        axis = edit.get("axis", 0)
        if not -value.ndim <= axis < value.ndim or value.shape[axis] != count:
            raise Refused(2, "other places")
        return [np.take(value, n, axis) for n in range(count)]

    _parted(state, _with_last_number(state, edit), words, apart)


def _with_last_number(state: State, edit: Fields) -> Fields:
    """The edit, `{0..}` in it being as many numbers as there are places."""
    if not isinstance(edit["to"], str) or "{0..}" not in edit["to"]:
        return edit
    shapes = [state.leaves[path].shape for path in select(state, edit, skips_empties=False)]
    axis = edit.get("axis", 0)
    if any(not -len(shape) <= axis < len(shape) for shape in shapes):
        raise Refused(2, "no such axis")
    counts = {shape[axis] for shape in shapes}
    if len(counts) != 1 or 0 in counts:
        raise Refused(2, "no number of layers")
    return {**edit, "to": edit["to"].replace("{0..}", f"{{0..{counts.pop() - 1}}}")}


def _shares(sizes: Sequence[int], groups: int) -> list[list[int]]:
    """The places of each part of an axis, of which each of the groups has a share."""
    if any(size % groups or not size for size in sizes):
        raise Refused(2, "no equal shares")
    places: list[list[int]] = [[] for _ in sizes]
    at = 0
    for _ in range(groups):
        for part, size in zip(places, sizes, strict=True):
            part.extend(range(at, at + size // groups))
            at += size // groups
    return places


def split(state: State, edit: Fields, world: World, words: Words) -> None:
    axis = edit["axis"]

    def apart(value: np.ndarray, count: int) -> list[np.ndarray]:
        if not -value.ndim <= axis < value.ndim:
            raise Refused(2, "no such axis")
        if count == 1 and not edit.get("sizes"):
            raise Refused(2, "one part is no split")
        there = value.shape[axis]
        sizes = edit.get("sizes") or [there // count] * count
        if len(sizes) != count or sum(sizes) != there:
            raise Refused(2, "other sizes")
        return [np.take(value, part, axis) for part in _shares(sizes, edit.get("groups", 1))]

    _parted(state, edit, words, apart)


def concat(state: State, edit: Fields, world: World, words: Words) -> None:
    axis = edit["axis"]

    def together(values: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.concatenate(values, axis)
        places = _shares([value.shape[axis] for value in values], edit.get("groups", 1))
        return np.take(whole, np.argsort([n for part in places for n in part]), axis)

    _joined(state, edit, words, together)


def _parts_of(state: State, edit: Fields, selected: Sequence[Path]) -> dict[Path, list[Path]]:
    """Where the parts of each leaf go."""
    texts = _written_out(edit["to"])
    groups: dict[Path, list[Path]] = {}
    for pattern in patterns_of(edit["at"]):
        for leaf in (path for path in selected if pattern.names(path)):
            node = pattern.nodes(leaf)[-1]
            goals = [places._target(text, node, pattern, state) for text in texts]
            groups[leaf] = [(*goal, *leaf[len(node) :]) for goal in goals]
    news = [new for group in groups.values() for new in group]
    if len(set(news)) < len(news) or any(n in state.leaves and n not in groups for n in news):
        raise Refused(2, "something stands there")
    return groups


def _parted(
    state: State, edit: Fields, words: Words, apart: Callable[[np.ndarray, int], list[np.ndarray]]
) -> None:
    """One leaf becomes several."""
    source = list(state.leaves)
    selected = select(state, edit, skips_empties=False)
    _refuse_clocks(state, selected)
    groups = _parts_of(state, edit, selected)
    count = len(next(iter(groups.values())))
    before = state.copy()
    parts = {leaf: _apart(before.leaves[leaf], apart, count) for leaf in groups}
    twin_parts: dict[Path, list[Leaf]] = {}
    slots = [s for s in state.slots.values() if s.param in groups and s.path in state.leaves]
    for slot in slots:
        if not all(is_below(new, slot.root) for new in groups[slot.param]):
            raise Refused(2, "it leaves what is mirrored")
        leaf = before.leaves[slot.path]
        is_hole = slot.relation == "hole"
        twin_parts[slot.path] = [leaf] * count if is_hole else _apart(leaf, apart, count)
    moves = {leaf: group[0] for leaf, group in groups.items()}
    for copies in zip(*groups.values(), strict=True):
        each = dict(zip(groups, copies, strict=True))
        places._say_merges(state, each)
        places._say_newcomers(state, each)
    places._refuse_torn(state, selected, edit)
    carried = {**places._twin_moves(state, moves, copying=False), **moves}
    places._rekey(state, carried)
    more: dict[Path, Leaf] = {}
    for leaf, group in groups.items():
        more |= dict(zip(group, parts[leaf], strict=True))
    made: dict[Path, Slot] = {}
    for slot in slots:
        for new, part in zip(groups[slot.param], twin_parts[slot.path], strict=True):
            place = slot.place_for(new)
            more[place] = part
            made[place] = replace(slot, path=place, param=new)
            state.restarted |= {place} if slot.path in before.restarted else set()
    rest = {path: leaf for path, leaf in state.leaves.items() if path not in more}
    if any(path in rest for path in more):
        raise Refused(2, "something stands there")
    state.leaves = places._nested({**rest, **more}, more)
    state.slots |= made
    policy = edit.get("optimizer") or edit.get("_plan_optimizer") or "transform"
    for slot in made.values():
        if slot.relation != "hole":
            _by_policy(state, slot, policy, words)
    touched = places._lists_of([*groups, *twin_parts]) | places._lists_of(more)
    places._closed(state, touched, [new for group in groups.values() for new in group])
    places._check_items(state)
    places._check_names(state, state.leaves, source)


def _apart(
    leaf: Leaf, apart: Callable[[np.ndarray, int], list[np.ndarray]], count: int
) -> list[Leaf]:
    if leaf.is_empty:
        return [leaf] * count
    if not leaf.dtype or leaf.is_python:
        raise Refused(2, f"'{printed(())}' is no array")
    values = apart(np.asarray(leaf.value), count)
    return [
        replace(
            leaf.with_value(kind_of(leaf.value, np.asarray(v)), known=leaf.known), ulps=leaf.ulps
        )
        for v in values
    ]


def _written_out(to: str | Sequence[str]) -> list[str]:
    texts = [to] if isinstance(to, str) else list(to)
    found: list[str] = []
    for text in texts:
        numbers = re.search(r"\{(\d+)\.\.(\d+)\}", text)
        if numbers is None:
            found.append(text)
            continue
        first, last = int(numbers[1]), int(numbers[2])
        found += [
            text[: numbers.start()] + str(n) + text[numbers.end() :] for n in range(first, last + 1)
        ]
    return found


OPERATIONS = {"stack": stack, "unstack": unstack, "split": split, "concat": concat}
