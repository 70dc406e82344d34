"""What the operations that bring leaves do: new ones at new places, with slots as the optimizer starts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.random_plans import lora, places, twins, values
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
from tests.random_plans.patterns import select
from tests.random_plans.world import World


def add(state: State, edit: Fields, world: World, words: Words) -> None:
    if edit.get("optimizer") in ("keep", "transform"):
        raise Refused(2, "new params have nothing to keep")
    at, source = edit["at"], list(state.leaves)
    place = places._typed(list(at.split("/")), state, is_spelled="%2F" in at)
    like = _by_text(state, edit["like"])
    there = state.leaves.get(place)
    if place in state.nodes() or (there is not None and not there.is_empty_dict):
        raise Refused(2, f"'{printed(place)}' is there")
    states = {slot.state for slot in state.slots.values()}
    if any(node and is_below(place, node) for node in states):
        raise Refused(2, "a place in a state of the optimizer")
    models = {(*place, *path[len(like) :]): path for path in state.leaves if is_below(path, like)}
    new = {path: _made(state, path, model, edit) for path, model in models.items()}
    more = dict(new)
    slots: dict[Path, Slot] = {}
    for path, model in models.items():
        for slot, leaf in _slots_of(state, path, new[path], model, edit):
            slots[slot.path] = slot
            more[slot.path] = leaf
    if state.slots and any(
        leaf.is_empty and is_below(path, state.root) for path, leaf in new.items()
    ):
        state.may[2] = "an empty container among params"
    taken = more.keys() & state.leaves.keys() - {place}
    if taken - slots.keys():
        raise Refused(2, "two leaves at one place")
    _say_newcomers(state, new, slots)
    state.has_strangers |= any(not is_below(path, state.root) for path in new)
    state.leaves = places._nested({**state.leaves, **more}, more)
    state.slots |= slots
    state.restarted |= {path for path, slot in slots.items() if slot.relation != "hole"}
    places._closed(state, places._lists_of(more), more)
    places._check_items(state)
    places._check_names(state, state.leaves, source)


def _by_text(state: State, text: str) -> Path:
    every = state.nodes() | set(state.leaves)
    found = [path for path in every if (path and printed(path) == text)]
    if len(found) != 1:
        raise Refused(2, f"'{text}' means {len(found)} places")
    return found[0]


def _made(state: State, path: Path, model: Path, edit: Fields) -> Leaf:
    leaf = state.leaves[model]
    if leaf.is_empty:
        return Leaf(leaf.value)
    shape = values._new_shape(edit.get("shape"), leaf, path)
    number = edit.get("with", {"zeros": 0.0, "ones": 1.0}.get(edit.get("init", "")))
    is_number = leaf.is_floating or leaf.is_complex or (leaf.is_integer and "with" in edit)
    if not is_number:
        raise Refused(2, f"no number stands in '{printed(model)}'")
    value = np.full(shape, values._number_in(number, leaf))
    return Leaf(type(leaf.value)(value[()]) if leaf.is_python else value)


def _slots_of(
    state: State, path: Path, leaf: Leaf, model: Path, edit: Fields
) -> list[tuple[Slot, Leaf]]:
    """What states hold for a new param, as they do for the one that it is like, or for any other."""
    is_param = leaf.is_floating or leaf.is_complex
    if not state.slots or not is_below(path, state.root) or not is_param:
        return []
    others = [
        other
        for other, spec in state.leaves.items()
        if is_below(other, state.root)
        and (spec.is_floating or spec.is_complex)
        and other not in state.slots
    ]
    kept = {other: _kept(state, other) for other in others}
    if model not in kept:
        if len(set(kept.values())) > 1:
            raise Refused(2, "states choose their params")
        same = [o for o in others if state.leaves[o].dtype == leaf.dtype] or others
        if not same:
            return []
        model = same[0]
    if len(state.leaves[model].shape) != len(leaf.shape):
        state.may[2] = "another number of axes"
        if len(set(kept.values())) > 1:
            raise Refused(2, "states choose their params, perhaps by their axes")
    found = []
    for slot in state.slots.values():
        new = _slot_like(state, slot, path, leaf, model, edit)
        if new is not None and new[0].path not in state.leaves:
            found.append(new)
    return found


def _kept(state: State, param: Path) -> frozenset[tuple[Any, ...]]:
    own = (s for s in state.slots.values() if is_below(param, s.param))
    return frozenset((s.node, s.relation == "hole") for s in own if s.path in state.leaves)


def _slot_like(
    state: State, slot: Slot, path: Path, leaf: Leaf, model: Path, edit: Fields
) -> tuple[Slot, Leaf] | None:
    if slot.path not in state.leaves or not is_below(model, slot.param):
        return None
    own = state.leaves[slot.path]
    if slot.relation == "hole":
        tail = model[len(slot.param) :]
        goal = path[: len(path) - len(tail)]
        if is_below(path, slot.param) or not goal or (*goal, *tail) != path:
            return None
        return replace(slot, path=slot.place_for(goal), param=goal), Leaf(own.value)
    field = str(slot.path[len(slot.node) - 1])
    shape = leaf.shape
    if _is_factored(state, slot):
        shape = twins._part(leaf.shape, field)
        if not _is_shown(state, leaf.shape):
            state.may[2] = "no other param shows whether one of this shape is factored"
    dtype = leaf.dtype if own.dtype == state.leaves[model].dtype else own.dtype
    relation = "same" if shape == leaf.shape else "one" if shape == (1,) else "factored"
    policy = edit.get("optimizer") or edit.get("_plan_optimizer")
    value, known, ulps = np.full(shape, slot.fresh), True, 0
    is_alike = relation == slot.relation and (own.shape != () or shape != ())
    if policy == "warm" and slot.is_second and is_alike and relation != "one":
        value = np.full(shape, np.asarray(own.value).astype("float64").mean())
        known, ulps = own.known, 2
    new = replace(slot, path=slot.place_for(path), param=path, relation=relation)
    made = Leaf(value.astype(dtype), ulps=ulps, narrowest=dtype if ulps else "", known=known)
    return new, made


def _is_factored(state: State, slot: Slot) -> bool:
    fields = {str(s.path[len(s.node) - 1]) for s in state.slots.values() if s.param == slot.param}
    return {"v_row", "v_col", "v"} <= fields and str(slot.path[len(slot.node) - 1]) in (
        "v_row",
        "v_col",
        "v",
    )


def _is_shown(state: State, shape: tuple[int, ...]) -> bool:
    """True if Adafactor's params that are factored, and those that are not, leave no doubt about another one."""
    if len(shape) < 2:
        return True
    rows = [s for s in state.slots.values() if str(s.path[len(s.node) - 1]) == "v_row"]
    shapes = [(s.relation == "factored", state.leaves[s.param].shape) for s in rows]
    sizes = [(is_factored, sorted(known)[-2]) for is_factored, known in shapes if len(known) > 1]
    own = sorted(shape)[-2]
    return any(own >= size if is_factored else own <= size for is_factored, size in sizes)


def _say_newcomers(state: State, new: dict[Path, Leaf], slots: dict[Path, Slot]) -> None:
    """What comes into the state of an optimizer itself."""
    if any(state.holds_optimizer(path) or path in state.slots for path in new):
        state.may[2] = "a leaf comes that no param has"


def merge(state: State, edit: Fields, world: World, words: Words) -> None:
    if edit.get("optimizer") in ("keep", "transform"):
        raise Refused(2, "new params have nothing to keep")
    source, before = list(state.leaves), state.copy()
    at = edit.get("at", "")
    place = places._typed(list(at.split("/")), state, is_spelled=False) if at else ()
    there = {(*place, *tail): leaf for tail, leaf in world.tree_of(edit["with"], at).items()}
    both = [
        path
        for path, leaf in there.items()
        if path in state.leaves and not (leaf.is_empty and state.leaves[path].is_empty)
    ]
    nodes = state.nodes()
    new = {
        path: leaf
        for path, leaf in there.items()
        if path not in state.leaves and not (leaf.is_empty and path in nodes)
    }
    filled = {path[:n] for path in new for n in range(len(path))}
    both = [path for path in both if not (path in filled and state.leaves[path].is_empty)]
    rule = edit.get("both", "error")
    if both and rule == "error":
        raise Refused(2, "leaves on both sides")
    if not new and (rule == "ours" or not both):
        raise Refused(2, "nothing is missing")
    if rule == "theirs":
        for path in both:
            value = there[path].value
            values._take(state, path, state.leaves[path], value, edit, there[path].home)
        twins.follow_new_values(state, before, edit, both, words, world=world)
    more = dict(new)
    for path, leaf in new.items():
        for slot, own in _slots_of(state, path, leaf, path, edit):
            if slot.path not in new:
                state.slots[slot.path] = slot
                more[slot.path] = replace(own, known=False)
    state.has_strangers |= bool(new)
    if any(state.holds_optimizer(path) for path in new):
        state.may[2] = "parts of an optimizer's state come"
    state.leaves = places._nested({**state.leaves, **more}, more)
    places._closed(state, places._lists_of(more), more)
    places._check_items(state)
    places._check_names(state, state.leaves, source)


def extract_lora(state: State, edit: Fields, world: World, words: Words) -> None:
    """A and B of one kernel; what is in them is judged elsewhere."""
    if edit.get("optimizer") in ("keep", "transform"):
        raise Refused(2, "new params have nothing to keep")
    selected, source = select(state, edit), list(state.leaves)
    state.may[1] = "values that are not finite, or too small for the dtype"
    new: dict[Path, Leaf] = {}
    more: dict[Path, Leaf] = {}
    slots: dict[Path, Slot] = {}
    for path in selected:
        kernel, tuned = state.leaves[path], Leaf(world.leaf_of(edit["with"], path))
        if not (kernel.is_floating and tuned.is_floating and len(kernel.shape) == 2):
            raise Refused(2, f"'{printed(path)}' is no kernel")
        if tuned.shape != kernel.shape or edit["rank"] > min(kernel.shape):
            raise Refused(2, f"'{printed(path)}' has another shape there, or no such rank")
        for name, shape in zip("ab", lora.shapes("flax", kernel.shape, edit["rank"]), strict=True):
            place = places._typed(list(edit[name].split("/")), state, is_spelled=False)
            there = state.leaves.get(place)
            if place in state.nodes() or (there is not None and not there.is_empty_dict):
                raise Refused(2, f"'{printed(place)}' is there")
            new[place] = more[place] = Leaf(np.zeros(shape, kernel.value.dtype), known=False)
            for slot, leaf in _slots_of(state, place, new[place], path, edit):
                slots[slot.path] = slot
                more[slot.path] = leaf
    if len(new) < 2 * len(selected):
        raise Refused(2, "two leaves at one place")
    _say_newcomers(state, new, slots)
    state.has_strangers |= any(not is_below(path, state.root) for path in new)
    state.leaves = places._nested({**state.leaves, **more}, more)
    state.slots |= slots
    state.restarted |= {path for path, slot in slots.items() if slot.relation != "hole"}
    places._closed(state, places._lists_of(more), more)
    places._check_items(state)
    places._check_names(state, state.leaves, source)


def intersect(state: State, edit: Fields, world: World, words: Words) -> None:
    places._check_policy(edit)
    selected = select(
        state, edit, skips_empties=False, names_twins=True, everything=not edit.get("at")
    )
    donor = world.tree_of(edit["with"], "")  # of one item alone, the source has no name in front
    known = {path[:n] for path in donor for n in range(len(path) + 1)}
    texts = {printed(path) for path in donor}
    gone = set()
    for path in selected:
        if path in known:
            if path not in donor and not state.leaves[path].is_empty:
                raise Refused(2, f"'{printed(path)}' is a node there")
        elif printed(path) in texts:
            state.may[2] = "a path that prints alike"
        else:
            gone.add(path)
    if gone == set(selected):
        raise Refused(2, "nothing that is named would be left")
    places._refuse_torn(state, gone, edit)
    for slot in list(state.slots.values()):
        below = [path for path in state.leaves if is_below(path, slot.param)]
        if below and all(path in gone for path in below) and slot.path in state.leaves:
            gone.add(slot.path)
    left = {path: leaf for path, leaf in state.leaves.items() if path not in gone}
    if not left:
        raise Refused(2, "nothing would be left, twins included")
    places._keep_only(state, left)
    places._closed(state, places._lists_of(gone), ())


OPERATIONS = {"add": add, "merge": merge, "intersect": intersect, "extract-lora": extract_lora}
