"""Moves of leaves as moves of nodes: what keeps its keys below a node moves with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from surgery_cli.matching.families import Family
from surgery_cli.matching.pairs import Pair
from surgery_cli.tree.paths import LeafPath


class _Move(NamedTuple):
    """A leaf or node of each layer that moves, and how many leaves of one layer that are."""

    old: Family
    new: Family
    leaves: int


def with_nodes(pairs: Sequence[Pair], tree: Sequence[LeafPath]) -> list[tuple[Family, Family]]:
    """The moves, those of all leaves of a node that keep their keys as one move of the node."""
    below = Counter(LeafPath(path[:depth]) for path in tree for depth in range(1, len(path)))
    moves = [_Move(pair.old, pair.new, 1) for pair in pairs]
    while True:
        groups: dict[object, list[_Move]] = {}
        for move in moves:
            groups.setdefault(_node_of(move), []).append(move)
        found: list[_Move] = []
        for members in groups.values():
            first, total = members[0], sum(move.leaves for move in members)
            is_node = _node_of(first) is not first
            if is_node and below[first.old.members[0].parent] == total:
                found.append(_Move(_above(first.old), _above(first.new), total))
            else:
                found += members
        if len(found) == len(moves) and all(a is b for a, b in zip(found, moves, strict=True)):
            return [(old, new) for old, new, _ in moves if old.members != new.members]
        moves = found


def _node_of(move: _Move) -> object:
    """What says of moves that they may be one move of the node above; the move itself if it can be none."""
    old, new = move.old, move.new
    is_same = len(old.template) > 1 < len(new.template) and old.template[-1] == new.template[-1]
    if is_same and _keeps_number(old) and _keeps_number(new):
        return old.template.parent, new.template.parent, old.numbers, new.numbers
    return move


def _keeps_number(family: Family) -> bool:
    """True if the number of the layer stands above the last key."""
    return len({path[-1] for path in family.members}) == 1


def _above(family: Family) -> Family:
    return msgspec.structs.replace(
        family,
        members=tuple(path.parent for path in family.members),
        template=family.template.parent,
    )
