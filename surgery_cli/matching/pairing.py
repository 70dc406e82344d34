"""Which leaves of one tree are which of another: fused ones cut, what is sure first, tied ones last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import Family, bare_leaves, families_of
from surgery_cli.matching.forms import forms
from surgery_cli.matching.fused import Fusion, fusions, with_parts
from surgery_cli.matching.pairs import RANKS, SAME, Certainty, Leaves, Pair, likeliest, moved_pair
from surgery_cli.matching.resized import resized
from surgery_cli.matching.same_values import same_values
from surgery_cli.matching.structures import sort_of
from surgery_cli.matching.subtrees import Former, Moved, moved_subtrees
from surgery_cli.tree.paths import LeafPath

_TIED: Final = f"{SAME}, as those of another pair: tied"


class Pairing(msgspec.Struct, frozen=True):
    """What was found: the pairs, and what is left of both trees."""

    pairs: list[Pair]
    copies: list[Pair]
    """Pairs whose old leaves have a place already: tied leaves that the new tree has twice."""
    drops: list[Pair]
    """Pairs whose new leaves have a source already: tied leaves that the old tree has twice."""
    guesses: list[Pair]
    splits: list[Fusion] = []
    """Leaves of the old tree that are cut first; pairs are of their parts."""
    joins: list[Fusion] = []
    """Leaves of the new tree that are put together last; pairs are of their parts."""

    @property
    def placed(self) -> set[LeafPath]:
        """The leaves of the new tree of which it is known what they are made of."""
        new = {
            path for pair in (*self.pairs, *self.copies, *self.drops) for path in pair.new.members
        }
        return new.union(*(one.whole.members for one in self.joins))


_Moves: TypeAlias = Mapping[LeafPath, tuple[LeafPath, Moved]]
"""Where leaves stand that moved with a subtree, and which."""


def paired(
    old: Leaves,
    new: Leaves,
    holdings: Holdings | None = None,
    former: Former = (),
    *,
    in_place: bool = False,
) -> Pairing:
    """Which leaves of one tree are which of the other; ``holdings``: of both, where values are to tell.

    Fused leaves are taken apart first, unless some of their parts find no counterpart. ``former`` says where leaves
    of the old tree stood before earlier edits. ``in_place``: what both trees have in one place has no pair, and is
    none of another. Leaves without an array, such as None, are paired where their whole subtree is.
    """
    moves = _moves(old, moved_subtrees(old, new, former))
    left = [
        {path: spec for path, spec in one.items() if not (in_place and _is_in_place(path, *both))}
        for one, both in ((old, (old, new)), (new, (new, old)))
    ]
    olds, news = map(families_of, left)
    bare = [*_with_subtrees(bare_leaves(left[0]), bare_leaves(left[1]), moves, None)]
    splits = fusions(olds, news, holdings, is_old=True)
    joins = fusions(news, olds, holdings, is_old=False)
    while True:
        found = _paired(with_parts(olds, splits), with_parts(news, joins), holdings, moves)
        here = {path for pair in found.pairs for path in pair.old.members}
        there = {path for pair in found.pairs for path in pair.new.members}
        whole_splits = [one for one in splits if one.leaves <= here]
        whole_joins = [one for one in joins if one.leaves <= there]
        if (whole_splits, whole_joins) == (splits, joins):
            pairs = [*found.pairs, *bare]
            return msgspec.structs.replace(found, pairs=pairs, splits=splits, joins=joins)
        splits, joins = whole_splits, whole_joins


def _is_in_place(path: LeafPath, own: Leaves, other: Leaves) -> bool:
    return path in other and sort_of(own[path]) == sort_of(other[path])


def _moves(old: Leaves, moved: Sequence[Moved]) -> _Moves:
    nodes = {one.old: one for one in moved}
    found: dict[LeafPath, tuple[LeafPath, Moved]] = {}
    for path in old if nodes else ():
        for depth in range(1, len(path) + 1):
            one = nodes.get(LeafPath(path[:depth]))
            if one is not None:
                found[path] = one.new / path[depth:], one
    return found


def _with_subtrees(
    olds: Sequence[Family], news: Sequence[Family], moves: _Moves, holdings: Holdings | None
) -> Iterator[Pair]:
    """The pairs of leaves whose subtrees moved, whole families where they did."""
    goals = {family.members: family for family in news}
    goals |= {one.members: one for family in news for one in family.single()}
    for family in olds if moves else ():
        own = {moves[path][1].why for path in family.members if path in moves}
        is_one = len(own) == 1 and moves.keys() >= set(family.members)
        whole = tuple(moves[path][0] for path in family.members) if is_one else ()
        for one in [family] if whole in goals else family.single():
            if one.members[0] not in moves:
                continue
            new = goals.get(tuple(moves[path][0] for path in one.members))
            if new is not None:
                moved = moves[one.members[0]][1]
                yield moved_pair(one, new, moved.certainty, moved.why, holdings)


def _paired(
    old: list[Family], new: list[Family], holdings: Holdings | None, moves: _Moves
) -> Pairing:
    """The pairs of families: first what is sure by its values, then what names and shapes make likely.

    Whole subtrees tell more than names, and less than names with values. Each time whole families of layers, and then
    their members one by one; between them what is the same but for the length of an axis.
    """
    left = _Left(old, new)
    ways = ((False, False), (False, True), (True, False), (True, True))
    for parts in ways if holdings else ():
        left.pair(holdings, parts, Certainty.SURE)
    if holdings is not None:
        left.take(list(resized(left.old, left.new, holdings)))
    else:
        left.take([*_with_subtrees(left.old, left.new, moves, None)])
    for parts in ways:
        left.pair(holdings, parts, Certainty.LIKELY)
    moved = _with_subtrees(left.old, left.new, moves, holdings)
    left.take([pair for pair in moved if pair.certainty is not Certainty.GUESS])
    if holdings is None:
        return Pairing(left.pairs, [], [], left.last_guesses())
    copies = _tied(old, left.new, holdings, lambda pair: pair.new)
    drops = _tied(left.old, new, holdings, lambda pair: pair.old)
    return Pairing(left.pairs, copies, drops, left.last_guesses(copies, drops))


class _Left:
    """The families that have no pair yet, and the pairs that there are."""

    def __init__(self, old: list[Family], new: list[Family]) -> None:
        self.old, self.new = old, new
        self.pairs: list[Pair] = []
        self._guesses: list[Pair] = []

    def pair(self, holdings: Holdings | None, parts: tuple[bool, bool], least: Certainty) -> None:
        """Pair what is at least so sure; ``parts``: the families of which side are taken apart."""
        here, there = (
            [one for family in side for one in (family.single() if is_parted else [family])]
            for side, is_parted in zip((self.old, self.new), parts, strict=True)
        )
        settled = [(pair.old, pair.new) for pair in self.pairs]
        is_sure = least is Certainty.SURE
        found = likeliest(here, there, holdings, settled, by_values=is_sure)
        good = [pair for pair in found if RANKS.index(pair.certainty) >= RANKS.index(least)]
        if not is_sure:
            self._guesses += [pair for pair in found if pair.certainty is Certainty.GUESS]
        self.take(good)

    def take(self, good: Sequence[Pair]) -> None:
        """Let these be pairs."""
        self.pairs += good
        self.old = _without(self.old, {path for pair in good for path in pair.old.members})
        self.new = _without(self.new, {path for pair in good for path in pair.new.members})

    def last_guesses(self, copies: Sequence[Pair] = (), drops: Sequence[Pair] = ()) -> list[Pair]:
        """What was guessed of leaves that have no pair, the latest of each."""
        here = {path for family in self.old for path in family.members}
        there = {path for family in self.new for path in family.members}
        here.difference_update(path for pair in drops for path in pair.old.members)
        there.difference_update(path for pair in copies for path in pair.new.members)
        found: list[Pair] = []
        for pair in reversed(self._guesses):
            if here.issuperset(pair.old.members) and there.issuperset(pair.new.members):
                found.append(pair)
                there.difference_update(pair.new.members)
        return found[::-1]


def _tied(
    olds: Sequence[Family],
    news: Sequence[Family],
    holdings: Holdings,
    of: Callable[[Pair], Family],
) -> list[Pair]:
    """Pairs of the same values, one for each family ``of`` the side that is left; the other is paired already."""
    found: dict[int, Pair] = {}
    for i, j in same_values(olds, news, holdings):
        old, new = olds[i], news[j]
        ways = [form for form in forms(old, new) if form.stack is form.unstack is None]
        for form in holdings.fitting(old, new, ways)[:1]:
            pair = Pair(old=old, new=new, form=form, certainty=Certainty.SURE, why=(_TIED,))
            found.setdefault(id(of(pair)), pair)
    return list(found.values())


def _without(families: Sequence[Family], done: set[LeafPath]) -> list[Family]:
    """The families, without leaves that are paired; of those that lost some, the others one by one."""
    left: list[Family] = []
    for family in families:
        if not done.intersection(family.members):
            left.append(family)
        else:
            left += [one for one in family.single() if one.members[0] not in done]
    return left
