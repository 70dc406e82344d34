"""What all edits of places share: leaves get other paths, their recipes stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.errors import PlanError, Problem
from surgery_cli.operations.base import Operation
from surgery_cli.operations.collisions import Collision, by_subtree, problem_of
from surgery_cli.operations.sequences import (
    NodeKeys,
    OptimizerState,
    indices_text,
    lists_in,
    nodes_above,
    raise_all,
)
from surgery_cli.optimizer.follow.moved_slots import moved_slots, slot_moves, slots_after
from surgery_cli.optimizer.follow.partial_moves import refuse_torn_by_copies, refuse_torn_by_moves
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence


class PlaceOperation(Operation):
    """Leaves change their place or go, their values stay: no tensor code, no step."""

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    def refuse_policy(self) -> None:
        """Raise if the edit asks for an optimizer policy, which would have no effect."""
        if self.optimizer is not None:
            raise PlanError(
                worded("'{}' takes no {optimizer}", self.name),
                why="the optimizer state always follows a change of place",
                fix=worded("take {optimizer} out of this edit"),
                field="optimizer",
            )


def moved(
    draft: Draft, moves: Mapping[LeafPath, LeafPath], *, twins_as_named: bool = False
) -> Draft:
    """The draft with leaves under other paths, twins included; every other leaf stays.

    Lists that lost an element close the gap, as Python's ``del`` does, and a note says so.

    Raises:
        PlanError: two leaves on one path, a leaf below a leaf, a list with a hole; slots that part from their params,
            unless ``twins_as_named``.
    """
    carried = {**slot_moves(draft, moves), **moves}
    if not twins_as_named:
        refuse_torn_by_moves(draft, moves, carried)
    rekeyed = _rekeyed(draft, carried, asked=set(moves.values()))
    return _without_gaps(rekeyed, left=carried, asked=moves.values(), arrived=carried.values())


def copied(
    draft: Draft, copies: Mapping[LeafPath, LeafPath], *, twins_as_named: bool = False
) -> Draft:
    """The draft with further leaves that have the recipes of others; twins are copied along. Raises as `moved`."""
    carried = {**slot_moves(draft, copies, copying=True), **copies}
    if not twins_as_named:
        refuse_torn_by_copies(draft, copies, carried)
    places = [(path, path) for path in draft.leaves] + list(carried.items())
    leaves = _arranged(
        draft, places, set(carried.values()), asked=set(copies.values()), is_copy=True
    )
    torn = {slot.node.parent for slot in draft.slots.values() if slot.path not in carried}
    slots = {
        path: slot
        for path, slot in draft.slots.items()
        # elsewhere a copy is a slot only with its whole state
        if path in carried and (carried[path].is_below(slot.node) or slot.node.parent not in torn)
    }
    more = msgspec.structs.replace(
        draft, leaves=leaves, slots={**draft.slots, **moved_slots(slots, carried)}
    )
    return _without_gaps(more, left=(), asked=copies.values(), arrived=carried.values())


def without(draft: Draft, gone: Mapping[LeafPath, LeafPath]) -> Draft:
    """The draft without the leaves of ``gone``, each with the node that was named with it.

    A container that was named goes with its leaves; one that only lost them stays, empty.

    Raises:
        PlanError: nothing would be left, or a list of the optimizer state would have a hole.
    """
    emptied = _emptied(draft, gone)
    leaves: dict[LeafPath, Output] = {}
    for path, recipe in draft.leaves.items():
        if path not in gone:
            leaves[path] = recipe
        elif (container := gone[path].parent) in emptied:
            kind = "List" if isinstance(path[len(container)], int) else "Dict"
            spec = LeafSpec(kind=LeafKind.EMPTY, empty=kind)
            leaves.setdefault(container, Output.empty(spec))
    less = msgspec.structs.replace(draft, leaves=leaves, slots=slots_among(draft, leaves))
    _refuse_nothing(less)
    return _without_gaps(less, left=gone, asked=(), arrived=())


def _emptied(draft: Draft, gone: Mapping[LeafPath, LeafPath]) -> set[LeafPath]:
    """Containers that lost everything and were not named: of nested ones only the innermost are empty."""
    nodes = nodes_above(path for path in draft.leaves if path not in gone)
    lost = {container for node in gone.values() if (container := node.parent) not in nodes}
    return lost - nodes_above(lost)


def only(draft: Draft, kept: Collection[LeafPath]) -> Draft:
    """The draft with the leaves of ``kept`` and no others, every one at its path.

    Raises:
        PlanError: nothing would be left, or a list would have a hole.
    """
    names = set(kept)
    leaves = {path: recipe for path, recipe in draft.leaves.items() if path in names}
    less = msgspec.structs.replace(draft, leaves=leaves, slots=slots_among(draft, leaves))
    _refuse_nothing(less)
    touched = lists_in(path for path in draft.leaves if path not in names)
    holes = NodeKeys(leaves).holes(touched)
    raise_all(
        Problem(
            f"the list '{container}' would keep only {indices_text(found)}",
            why="a list has no holes, and `keep` leaves every leaf at its path",
            fix=f"keep the whole of '{container}', or `delete` elements of it to renumber the rest",
            path=str(container),
        )
        for container, found in holes.items()
    )
    return less


def slots_among(draft: Draft, leaves: Collection[LeafPath]) -> dict[LeafPath, Slot]:
    """The slots whose leaf and whose param (for holes: a node of params) are both among ``leaves``."""
    nodes = nodes_above(leaves)
    return {
        path: slot
        for path, slot in draft.slots.items()
        if path in leaves and (slot.param in leaves or slot.param in nodes)
    }


def _rekeyed(
    draft: Draft, moves: Mapping[LeafPath, LeafPath], asked: Collection[LeafPath] = ()
) -> Draft:
    """All moves at once, without a look at gaps in lists."""
    places = [(path, moves.get(path, path)) for path in draft.leaves]
    leaves = _arranged(draft, places, set(moves.values()), asked)
    return msgspec.structs.replace(draft, leaves=leaves, slots=slots_after(draft, moves))


def _arranged(
    draft: Draft,
    places: Iterable[tuple[LeafPath, LeafPath]],
    fresh: Collection[LeafPath],
    asked: Collection[LeafPath],
    *,
    is_copy: bool = False,
) -> dict[LeafPath, Output]:
    """Recipes under new paths; refuses two leaves on one path, and a ``fresh`` leaf above or below another.

    ``asked`` are the fresh paths that the edit gave itself; the others are those of twins.
    """
    origin: dict[LeafPath, LeafPath] = {}
    collisions: list[Collision] = []
    places = list(places)
    for old, new in places:
        if new in origin:
            collisions.append(Collision(origin[new], old, new))
        origin.setdefault(new, old)
    if collisions:
        # twins collide because their params do, and follow them out of it
        collisions = [found for found in collisions if found.place in asked] or collisions
        raise_all(
            problem_of(found, is_copy=is_copy)
            for found in by_subtree(collisions, places, draft.leaves)
        )
    problems: dict[LeafPath, Problem] = {}
    nodes = nodes_above(origin)
    filled: set[LeafPath] = set()
    for new in (path for path in origin if path in fresh):
        if new in nodes:
            below = next(path for path in origin if path != new and path.is_below(new))
            problems[new] = _nested(below, new, f"'{origin[new]}' would stand there as a leaf")
        for depth in range(1, len(new)):
            above = LeafPath(new[:depth])
            if above not in origin:
                continue
            spec = draft.leaves[origin[above]].spec
            if spec.empty == "Dict" and isinstance(new[depth], str):
                filled.add(above)
            else:
                problems[new] = _nested(new, above, f"it is a leaf: {spec.type_text}")
    # here, too, twins follow their params out of it
    raise_all([found for new, found in problems.items() if new in asked] or problems.values())
    return {new: draft.leaves[old] for new, old in origin.items() if new not in filled}


def _nested(below: LeafPath, node: LeafPath, why: str) -> Problem:
    return Problem(
        f"'{below}' cannot stand below '{node}'",
        why=why,
        fix=f"choose a place that is not '{node}', or move or `delete` what is there first",
        path=str(below),
        field="to",
    )


def _without_gaps(
    draft: Draft,
    *,
    left: Iterable[LeafPath],
    asked: Iterable[LeafPath],
    arrived: Iterable[LeafPath],
) -> Draft:
    """Close the gaps that an edit left in lists; refuse holes that it asked for, and mixed keys.

    ``left`` are paths that leaves have left, ``asked`` those that the edit gave, ``arrived`` with twins.
    """
    touched = lists_in(left) | lists_in(arrived)
    keys = NodeKeys(draft.leaves)
    keys.refuse_mixed()
    holes = keys.holes(touched)
    chosen = lists_in(asked) if holes else ()
    raise_all(_asked_hole(c, found) for c, found in holes.items() if c in chosen)
    optimizer = OptimizerState(draft)
    closing = {
        container: {old: new for new, old in enumerate(found)}
        for container, found in holes.items()
        if not optimizer.holds(container)
    }
    if closing:
        draft = _renumbered(draft, closing)
        holes = NodeKeys(draft.leaves).holes({_renumber(node, closing) for node in touched})
    raise_all(
        Problem(
            f"the list '{container}' would keep only {indices_text(found)}",
            why="positions in the optimizer state have a meaning, so they are never renumbered",
            fix=f"leave '{container}' whole; values in it can be edited or reset",
            path=str(container),
        )
        for container, found in holes.items()
    )
    return draft


def _renumbered(draft: Draft, closing: Mapping[LeafPath, Mapping[int, int]]) -> Draft:
    """Elements move up in the lists of ``closing`` (old index to new), twins with them."""
    moves = {path: new for path in draft.leaves if (new := _renumber(path, closing)) != path}
    carried = {**slot_moves(draft, moves), **moves}
    notes = (
        Consequence(
            f"the list '{container}' closes its gap: {indices_text([*found])} become 0 to {len(found) - 1}"
        )
        for container, found in closing.items()
    )
    return _rekeyed(draft, carried).noting(*notes)


def _renumber(path: LeafPath, closing: Mapping[LeafPath, Mapping[int, int]]) -> LeafPath:
    keys: list[Key] = list(path)
    for depth, key in enumerate(path):
        if isinstance(key, int) and (renumbered := closing.get(LeafPath(path[:depth]))):
            keys[depth] = renumbered.get(key, key)
    return LeafPath(keys)


def _asked_hole(container: LeafPath, found: list[int]) -> Problem:
    return Problem(
        f"the list '{container}' would have {indices_text(found)}",
        why="a list has no holes, and the edit says which index each leaf gets",
        fix=f"place {len(found)} elements at 0 to {len(found) - 1}; "
        + worded("{moves} takes several at once"),
        path=str(container),
        field="to",
    )


def _refuse_nothing(draft: Draft) -> None:
    if not draft.leaves:
        raise PlanError(
            "nothing would be left",
            why="the edit removes every leaf of the tree",
            fix="name fewer leaves",
            field="at",
        )
