"""What of the checkpoint stands under another name in the script: as `derive` pairs it, whole nodes where they move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from surgery_cli.matching.moves import with_nodes
from surgery_cli.matching.pairing import paired
from surgery_cli.matching.pairs import RANKS, Certainty, Pair
from surgery_cli.matching.structures import numbered
from surgery_cli.matching.subtrees import Former
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

Moves: TypeAlias = Mapping[LeafPath, LeafPath]
"""Old path to new."""


class Reason(msgspec.Struct, frozen=True):
    """How sure a proposal is, and why."""

    certainty: Certainty
    why: tuple[str, ...]

    def beside(self, other: Reason) -> Reason:
        """That of two proposals at once."""
        certainty = min(self.certainty, other.certainty, key=RANKS.index)
        return Reason(certainty, tuple(dict.fromkeys((*self.why, *other.why))))


Reasons: TypeAlias = Mapping[LeafPath, Reason]
"""Why nodes are taken for others, by their old paths."""


def moves_among(
    stored: TreeSpec, wanted: TreeSpec, former: Former = ()
) -> tuple[dict[LeafPath, LeafPath], dict[LeafPath, Reason]]:
    """The nodes that stand under another name, and why each is taken for the other.

    Of what only names pair no more than what means one thing by the vocabulary, `q_proj` and `query`, and moves as it
    is: a guess could swap two layers.
    """
    pairs = [
        msgspec.structs.replace(pair, old=old, new=new)
        for pair in paired(stored, wanted, former=former, in_place=True).pairs
        if pair.is_of_subtree or (pair.is_move and pair.means_one_thing)
        for old, new in zip(pair.old.single(), pair.new.single(), strict=True)
        if pair.is_of_subtree or not _is_of_one_series(old.members[0], new.members[0])
    ]
    moves = {before.members[0]: after.members[0] for before, after in with_nodes(pairs, [*stored])}
    return moves, _reasons(moves, pairs)


def _is_of_one_series(old: LeafPath, new: LeafPath) -> bool:
    """True for two numbers of one series: `layers_0` and `layers_12`."""
    return numbered(old)[0] == numbered(new)[0]


def _reasons(moves: Moves, pairs: list[Pair]) -> dict[LeafPath, Reason]:
    found: dict[LeafPath, Reason] = {}
    for pair in pairs:
        path, own = pair.old.members[0], Reason(pair.certainty, pair.why)
        for depth in range(1, len(path) + 1):
            node = LeafPath(path[:depth])
            if node in moves:
                found[node] = found[node].beside(own) if node in found else own
    return found
