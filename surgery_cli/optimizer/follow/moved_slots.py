"""Where twins go when their params go: moves, copies, deletions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath


def slot_moves(
    draft: Draft, moves: Mapping[LeafPath, LeafPath], *, copying: bool = False
) -> dict[LeafPath, LeafPath]:
    """Where the twins of moved params must stand: the moves that follow from ``moves``, old path to new.

    Twins that ``moves`` names itself are not in the answer. If all params below the root that a state mirrors move
    to another root alike, the state stays where it is. ``copying``: the old leaves stay, and a copy outside the root
    has no twins.

    Raises:
        PlanError: a param leaves the part of the tree that a state mirrors, while others stay.
    """
    found: dict[LeafPath, LeafPath] = {}
    problems: list[Problem] = []
    shifted: dict[LeafPath, bool] = {}
    nodes = _moved_nodes(draft, moves)
    for slot in draft.slots.values():
        goal = moves.get(slot.param) or nodes.get(slot.param)
        if goal is None or slot.path in moves:
            continue
        place = slot.place_for(goal)
        if place is None:
            if copying:
                continue
            if slot.root not in shifted:
                shifted[slot.root] = _moves_whole(slot.root, draft, moves)
            if not shifted[slot.root]:
                problems.append(_leaves_mirror(slot, goal))
        elif place != slot.path:
            found[slot.path] = place
    if problems:
        raise PlanError.of(problems)
    return found


def _moved_nodes(draft: Draft, moves: Mapping[LeafPath, LeafPath]) -> dict[LeafPath, LeafPath]:
    """Where nodes of params go for which a state holds one hole: all leaves below must go alike.

    Raises:
        PlanError: some leaves leave the node and others stay, so that one hole cannot stand for all of them.
    """
    wanted = {
        s.param
        for s in draft.slots.values()
        if s.relation == "hole" and s.param not in draft.leaves
    }
    if not wanted:
        return {}
    goals: dict[LeafPath, set[LeafPath | None]] = {}
    for leaf in draft.leaves:
        for depth in range(1, len(leaf)):
            node = LeafPath(leaf[:depth])
            if node in wanted:
                goals.setdefault(node, set()).add(_goal_of_node(node, leaf, moves.get(leaf, leaf)))
    mixed = [node for node, found in goals.items() if len(found) > 1 or None in found]
    if mixed:
        raise PlanError(
            f"'{mixed[0]}' cannot be taken apart",
            why="a state of the optimizer leaves it out as a whole, with one empty leaf",
            fix=f"move '{mixed[0]}' as a whole, or within itself",
            path=str(mixed[0]),
            field="to",
        )
    moved = {node: found.pop() for node, found in goals.items()}
    return {node: goal for node, goal in moved.items() if goal is not None and goal != node}


def _goal_of_node(node: LeafPath, leaf: LeafPath, goal: LeafPath) -> LeafPath | None:
    """Where ``node`` goes if ``leaf`` below it goes to ``goal``; None if that does not say."""
    if goal.is_below(node):
        return node
    tail = leaf[len(node) :]
    kept = len(goal) - len(tail)  # the node may be the leaf itself: nothing below it is named
    return LeafPath(goal[:kept]) if kept >= 0 and goal[kept:] == tail else None


def _moves_whole(root: LeafPath, draft: Draft, moves: Mapping[LeafPath, LeafPath]) -> bool:
    """True if everything below ``root`` moves to one other root alike."""
    goals = set()
    for leaf in draft.leaves:
        if leaf.is_below(root):
            goals.add(_goal_of_node(root, leaf, moves[leaf]) if leaf in moves else None)
    return len(goals) == 1 and None not in goals


def _leaves_mirror(slot: Slot, goal: LeafPath) -> Problem:
    return Problem(
        f"'{slot.param}' cannot become '{goal}': its twin '{slot.path}' has no place there",
        why=f"the state at '{slot.node}' mirrors what stands below '{slot.root}'",
        fix=f"stay below '{slot.root}', or move '{slot.root}' as a whole, or `delete` '{slot.node}' first",
        path=str(slot.param),
        field="to",
    )


def slots_below(draft: Draft, params: Iterable[LeafPath]) -> list[LeafPath]:
    """The twins that go when ``params`` are deleted, holes for them included."""
    gone = set(params)
    nodes = _nodes_of(path for path in draft.leaves if path not in gone)
    had = _nodes_of(gone)
    return [
        path
        for path, slot in draft.slots.items()
        if path in draft.leaves
        and path not in gone
        and (slot.param in gone or (slot.param in had and slot.param not in nodes))
    ]


def _nodes_of(leaves: Iterable[LeafPath]) -> set[LeafPath]:
    found: set[LeafPath] = set()
    for leaf in leaves:
        node = leaf.parent
        while node and node not in found:
            found.add(node)
            node = node.parent
    return found


def slots_after(draft: Draft, moves: Mapping[LeafPath, LeafPath]) -> dict[LeafPath, Slot]:
    """The slots of the draft after ``moves``; those of a whole node of params go with it. Raises as `slot_moves`."""
    return moved_slots(draft.slots, {**_moved_nodes(draft, moves), **moves})


def moved_slots(
    slots: Mapping[LeafPath, Slot], moves: Mapping[LeafPath, LeafPath]
) -> dict[LeafPath, Slot]:
    """The slots after ``moves``, of params and of slots alike, in their order."""
    return {moved.path: moved for moved in (moved_slot(slot, moves) for slot in slots.values())}


def moved_slot(slot: Slot, moves: Mapping[LeafPath, LeafPath]) -> Slot:
    """One slot after ``moves``: its path, its param, and the nodes that mirror each other."""
    path = moves.get(slot.path, slot.path)
    clocks = tuple(moves.get(clock, clock) for clock in slot.clocks)
    param = moves.get(slot.param)
    if param is None:
        is_node = slot.relation == "hole" and path != slot.path and slot.param not in moves
        param = _node_of_hole(slot, path) if is_node else slot.param
    if path == slot.path and param == slot.param and clocks == slot.clocks:
        return slot
    inside = slot.param[len(slot.root) :]
    root = slot.root
    if not param.is_below(root):
        root = LeafPath(param[: len(param) - len(inside)])
    aligned = msgspec.structs.replace(slot, root=root, param=_below(root, inside))
    mirrored = aligned.place_for(param)
    below = mirrored[len(slot.node) :] if mirrored else ()
    node = slot.node
    if below and path[-len(below) :] == below:
        node = LeafPath(path[: -len(below)])
    return msgspec.structs.replace(
        slot, path=path, param=param, root=root, node=node, clocks=clocks
    )


def _below(root: LeafPath, inside: Collection[str | int]) -> LeafPath:
    return root / inside


def _node_of_hole(slot: Slot, path: LeafPath) -> LeafPath:
    """The node of params that a hole stands for once it stands at ``path``; unchanged if its state moved."""
    if path.is_below(slot.node):
        return slot.root / path[len(slot.node) :]
    return slot.param
