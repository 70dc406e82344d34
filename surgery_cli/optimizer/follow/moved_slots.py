"""Where slots go when leaves get other paths: with their params, and with the states that they are a part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.tree.paths import Key, LeafPath

Paths: TypeAlias = tuple[LeafPath, ...]

Relation: TypeAlias = Mapping[LeafPath, Paths]
"""The new paths of leaves by their old ones: none for a leaf that goes; for a copied one its own first, then those of
the copies. Leaves that it does not name stay."""

_Nodes: TypeAlias = Mapping[tuple[Key, ...], Paths | None]
"""The same of nodes, as far as anything below them is named; None where not all that is below goes alike."""


def twins_along(draft: Draft, relation: Relation) -> dict[LeafPath, Paths]:
    """What follows from ``relation`` for the twins that it does not name itself: they go, move and are copied alike.

    If all params below the root that a state mirrors move to another root alike, the state stays where it is. A copy
    outside of the root has no twins.

    Raises:
        PlanError: a param leaves the part of the tree that a state mirrors, while others stay.
    """
    found: dict[LeafPath, Paths] = {}
    problems: list[Problem] = []
    nodes = _new_nodes(draft, relation)
    for slot in draft.slots.values():
        goals = _new_paths(slot.param, relation, nodes)
        if slot.path in relation:
            continue
        if goals is None:
            raise _taken_apart(slot.param)
        places = [slot.path if goal == slot.param else slot.place_for(goal) for goal in goals]
        if places == [None]:
            places = [slot.path]
            if nodes.get(slot.root) in (None, (slot.root,)):
                problems.append(leaves_mirror(slot, goals[0]))
        news = tuple(place for place in places if place is not None)
        if news != (slot.path,):
            found[slot.path] = news
    raise_all(problems)
    return found


def slots_after(draft: Draft, relation: Relation) -> dict[LeafPath, Slot]:
    """The slots once every leaf stands where ``relation`` says: those whose leaf and whose param are still there.

    A copy is a slot where it stands for a copy of its param in the same state.
    """
    found: dict[LeafPath, Slot] = {}
    copies: dict[LeafPath, Slot] = {}
    nodes = _new_nodes(draft, relation)
    for slot in draft.slots.values():
        paths = relation.get(slot.path, (slot.path,))
        params = _new_paths(slot.param, relation, nodes)
        if params is None:
            params = (slot.param,)
        if paths and params:
            found[paths[0]] = _moved(slot, paths[0], params[0], relation, nodes)
        for path, param in zip(paths[1:], params[1:], strict=False):
            if slot.place_for(param) == path:
                copies[path] = msgspec.structs.replace(slot, path=path, param=param)
    return {**found, **copies}


def _moved(slot: Slot, path: LeafPath, param: LeafPath, relation: Relation, nodes: _Nodes) -> Slot:
    """The slot at another path, or of a param at another path; roots and states that move as a whole go along."""
    root = (nodes.get(slot.root) or (slot.root,))[0]
    node = (nodes.get(slot.node) or (slot.node,))[0]
    clocks = tuple((relation.get(clock) or (clock,))[0] for clock in slot.clocks)
    before = (slot.path, slot.param, slot.root, slot.node, slot.clocks)
    if (path, param, root, node, clocks) == before:
        return slot
    return msgspec.structs.replace(
        slot, path=path, param=param, root=root, node=node, clocks=clocks
    )


def _new_paths(path: LeafPath, relation: Relation, nodes: _Nodes) -> Paths | None:
    """Where a param goes, or a node of params for which a state holds one hole; None if that is taken apart."""
    return relation[path] if path in relation else nodes.get(path, (path,))


def _new_nodes(draft: Draft, relation: Relation) -> _Nodes:
    """Where roots, states and nodes for which a state holds one hole go with the leaves below them."""
    wanted: set[tuple[Key, ...]] = set()
    for slot in draft.slots.values():
        wanted.update((slot.root, slot.node))
        if slot.relation == "hole" and slot.param not in draft.leaves:
            wanted.add(slot.param)
    depths = sorted({len(node) for node in wanted})
    touched = {path[:depth] for path in relation for depth in depths} & wanted
    goals: dict[tuple[Key, ...], set[tuple[LeafPath | None, ...]]] = {n: set() for n in touched}
    for leaf in draft.leaves if touched else ():
        news = relation.get(leaf, (leaf,))
        for depth in depths if news else ():
            if leaf[:depth] in touched and depth <= len(leaf):
                places = (_new_node(leaf, depth, new) for new in news)
                # copied within the node, which stays for the leaf and for its copy
                goals[leaf[:depth]].add(tuple(dict.fromkeys(places)))
    return {node: _if_alike(found) for node, found in goals.items()}


def _new_node(leaf: LeafPath, depth: int, new: LeafPath) -> LeafPath | None:
    """Where the node above a leaf goes if the leaf goes to ``new``; None if that does not say."""
    if new[:depth] == leaf[:depth]:
        return LeafPath(leaf[:depth])
    tail = leaf[depth:]
    kept = len(new) - len(tail)  # the node may be the leaf itself: nothing below it is named
    return LeafPath(new[:kept]) if kept >= 0 and new[kept:] == tail else None


def _if_alike(found: set[tuple[LeafPath | None, ...]]) -> Paths | None:
    """The one answer that all leaves below a node give; none if all of them go, None if they differ."""
    if not found:
        return ()
    first = next(iter(found))
    known = tuple(node for node in first if node is not None)
    return known if len(found) == 1 and len(known) == len(first) else None


def _taken_apart(node: LeafPath) -> PlanError:
    return PlanError(
        f"'{node}' cannot be taken apart",
        why="a state of the optimizer leaves it out as a whole, with one empty leaf",
        fix=f"move '{node}' as a whole, or within itself",
        path=str(node),
        field="to",
    )


def leaves_mirror(slot: Slot, goal: LeafPath) -> Problem:
    """A param would go where a state that mirrors it has no place for its slot."""
    return Problem(
        f"'{slot.param}' cannot become '{goal}': its twin '{slot.path}' has no place there",
        why=f"the state at '{slot.node}' mirrors what stands below '{slot.root}'",
        fix=f"stay below '{slot.root}', or move '{slot.root}' as a whole, or `delete` '{slot.node}' first",
        path=str(slot.param),
        field="to",
    )
