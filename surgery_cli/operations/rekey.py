"""The one rule for paths: every edit of places is a relation of old paths to new ones, and all follow it alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.base import Operation
from surgery_cli.operations.collisions import Collision, by_subtree, problem_of
from surgery_cli.operations.sequences import (
    asked_hole,
    gap_notes,
    gaps_to_close,
    hole_left,
    holes_in,
    renumbered,
)
from surgery_cli.optimizer.follow.moved_slots import Relation, slots_after, twins_along
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, lists_in, nodes_above

FOLLOWS: Final = MappingProxyType(
    {"optimizer": "the optimizer state always follows a change of place"}
)


class PlaceOperation(Operation):
    """Leaves change their place or go, their values stay: no tensor code, no step."""

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    target_fields: ClassVar[tuple[str, ...] | None] = None
    unused_fields: ClassVar[Mapping[str, str]] = FOLLOWS


def rekey(
    draft: Draft,
    relation: Relation,
    *,
    arriving: Mapping[LeafPath, Output] | None = None,
    named: Mapping[LeafPath, LeafPath] | None = None,
    is_literal: bool = False,
) -> Draft:
    """The draft with its leaves where ``relation`` says, all at once, and their twins, slots and clocks with them.

    ``arriving`` leaves come from elsewhere, to new paths. ``named`` holds the node that was named with each leaf that
    goes: a container that was named goes with its leaves, one that only lost them stays, empty. ``is_literal``: nothing
    moves that ``relation`` does not name, no twin and no element of a list. Else lists that lost an element close the
    gap, as Python's ``del`` does, and a note says so.

    Raises:
        PlanError: two leaves on one path, a leaf below a leaf, a list with a hole, or nothing left; a param leaves
            what a state mirrors.
    """
    if not relation and not arriving:
        return draft
    whole = relation if is_literal else {**twins_along(draft, relation), **relation}
    asked = {new for old, news in relation.items() for new in news if new != old} | set(
        arriving or ()
    )
    emptied = _emptied(draft, whole, named) if named else {}
    after = _rekeyed(draft, whole, asked, arriving, emptied)
    if not after.leaves:
        raise PlanError(
            "nothing would be left",
            why="the edit removes every leaf of the tree",
            fix="name fewer leaves",
            field="at",
        )
    left = (old for old, news in whole.items() if news[:1] != (old,))
    arrived = (new for news in (*whole.values(), tuple(arriving or ())) for new in news)
    touched = lists_in(left) | lists_in(arrived)
    holes = holes_in(after.leaves, touched)
    return _closed(after, holes, touched, lists_in(asked), is_literal) if holes else after


def _closed(
    draft: Draft,
    holes: Mapping[LeafPath, list[int]],
    touched: Collection[LeafPath],
    asked: Collection[LeafPath],
    is_literal: bool,
) -> Draft:
    """The draft without ``holes``, as far as elements may move up; those that were ``asked`` for may not."""
    raise_all(asked_hole(node, found) for node, found in holes.items() if node in asked)
    closing = {} if is_literal else gaps_to_close(draft, holes)
    if closing:
        moves = {p: (new,) for p in draft.leaves if (new := renumbered(p, closing)) != p}
        draft = _rekeyed(draft, {**twins_along(draft, moves), **moves})
        holes = holes_in(draft.leaves, {renumbered(node, closing) for node in touched})
    raise_all(hole_left(node, found, is_literal) for node, found in holes.items())
    return draft.noting(*gap_notes(closing))


def _rekeyed(
    draft: Draft,
    relation: Relation,
    asked: Collection[LeafPath] = (),
    arriving: Mapping[LeafPath, Output] | None = None,
    emptied: Mapping[LeafPath, LeafPath] | None = None,
) -> Draft:
    """All at once, without a look at gaps in lists.

    ``asked`` are the new paths that the edit gave itself, ``emptied`` containers that take the place of a lost leaf.
    """
    emptied = emptied or {}
    stand_ins = {leaf: (container,) for leaf, container in emptied.items()}
    stay = {path: stand_ins.get(path, relation.get(path, (path,)))[:1] for path in draft.leaves}
    places = [(path, news[0]) for path, news in stay.items() if news]
    copies = [(old, new) for old, news in relation.items() for new in news[1:]]
    origin: dict[LeafPath, LeafPath] = {}
    collisions: list[Collision] = []
    for old, new in places + copies:
        if new in origin:
            collisions.append(Collision(origin[new], old, new))
        origin.setdefault(new, old)
    if collisions:
        # twins collide because their params do, and follow them out of it
        collisions = [found for found in collisions if found.place in asked] or collisions
        raise_all(
            problem_of(found, is_copy=bool(copies))
            for found in by_subtree(collisions, places + copies, draft.leaves)
        )
    leaves = {new: draft.leaves[old] for new, old in origin.items()} | dict(arriving or {})
    for leaf, node in emptied.items():
        kind = "List" if isinstance(leaf[len(node)], int) else "Dict"
        leaves[node] = Output.empty(LeafSpec(kind=LeafKind.EMPTY, empty=kind))
    fresh = [new for new in leaves if origin.get(new) != new]
    # here, too, twins follow their params out of it
    filled = _filled(leaves, origin, [new for new in fresh if new in asked])
    filled |= _filled(leaves, origin, fresh)
    for node in filled:
        del leaves[node]
    slots = slots_after(draft, relation)
    if filled:  # holes for params that there are again
        slots = {path: slot for path, slot in slots.items() if path not in filled}
    return draft.replaced(leaves=leaves, slots=slots)


def _filled(
    leaves: Mapping[LeafPath, Output],
    origin: Mapping[LeafPath, LeafPath],
    fresh: Collection[LeafPath],
) -> set[LeafPath]:
    """Empty dicts that get keys. Refuses every other leaf that comes to stand above or below another."""
    problems: dict[LeafPath, Problem] = {}
    nodes = nodes_above(leaves) if fresh else set()
    filled: set[LeafPath] = set()
    for new in fresh:
        if new in nodes:
            below = next(path for path in leaves if path != new and path.is_below(new))
            why = f"'{origin.get(new, new)}' would stand there as a leaf"
            problems[new] = _nested(below, new, why)
        for depth in range(1, len(new)):
            above = LeafPath(new[:depth])
            if above not in leaves:
                continue
            spec, below = leaves[above].spec, LeafPath(new[: depth + 1])
            if spec.empty == "Dict" and isinstance(new[depth], str):
                filled.add(above)
            else:
                problems[below] = _nested(below, above, f"it is a leaf: {spec.type_text}")
    raise_all(problems.values())
    return filled


def _nested(below: LeafPath, node: LeafPath, why: str) -> Problem:
    return Problem(
        f"'{below}' cannot stand below '{node}'",
        why=why,
        fix=f"choose a place that is not '{node}', or move or `delete` what is there first",
        path=str(below),
        field="to",
    )


def _emptied(
    draft: Draft, relation: Relation, named: Mapping[LeafPath, LeafPath]
) -> dict[LeafPath, LeafPath]:
    """Containers that lose everything and were not named, by a leaf that each loses: of nested ones the innermost."""
    above = {
        LeafPath(leaf[:depth]): node
        for leaf, node in named.items()
        for depth in range(len(node), len(leaf) + 1)
    }
    gone = {path: _gone_with(path, draft, above) for path, news in relation.items() if not news}
    nodes = nodes_above(path for path in draft.leaves if path not in gone)
    lost: dict[LeafPath, LeafPath] = {}
    for path in draft.leaves:
        if path in gone and (container := gone[path].parent) not in nodes:
            lost.setdefault(container, path)
    outer = nodes_above(lost)
    return {path: container for container, path in lost.items() if container not in outer}


def _gone_with(path: LeafPath, draft: Draft, named: Mapping[LeafPath, LeafPath]) -> LeafPath:
    """The node that goes with a leaf: the one that was named, or for a twin the one that mirrors it."""
    slot, node = draft.slots.get(path), named.get(path, path)
    if slot is None or slot.param not in named:
        return node
    mirrored = slot.node / named[slot.param][len(slot.root) :]
    return mirrored if node.is_below(mirrored) else node
