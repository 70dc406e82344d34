"""Which leaves of one tree are which of another: fused ones cut, what is sure first, tied ones last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import Family, families_of
from surgery_cli.matching.forms import forms
from surgery_cli.matching.fused import Fusion, fusions, with_parts
from surgery_cli.matching.pairs import RANKS, SAME, Certainty, Leaves, Pair, likeliest
from surgery_cli.matching.resized import resized
from surgery_cli.matching.same_values import same_values
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


def paired(old: Leaves, new: Leaves, holdings: Holdings | None = None) -> Pairing:
    """Which leaves of one tree are which of the other; ``holdings``: of both, where values are to tell.

    Fused leaves are taken apart first, unless some of their parts find no counterpart.
    """
    olds, news = families_of(old), families_of(new)
    splits = fusions(olds, news, holdings, is_old=True)
    joins = fusions(news, olds, holdings, is_old=False)
    while True:
        found = _paired(with_parts(olds, splits), with_parts(news, joins), holdings)
        here = {path for pair in found.pairs for path in pair.old.members}
        there = {path for pair in found.pairs for path in pair.new.members}
        whole_splits = [one for one in splits if one.leaves <= here]
        whole_joins = [one for one in joins if one.leaves <= there]
        if (whole_splits, whole_joins) == (splits, joins):
            return msgspec.structs.replace(found, splits=splits, joins=joins)
        splits, joins = whole_splits, whole_joins


def _paired(old: list[Family], new: list[Family], holdings: Holdings | None) -> Pairing:
    """The pairs of families: first what is sure by its values, then what names and shapes make likely.

    Each time whole families of layers, and then their members one by one; between them what is the same but for the
    length of an axis.
    """
    left = _Left(old, new)
    ways = ((False, False), (False, True), (True, False), (True, True))
    for parts in ways if holdings else ():
        left.pair(holdings, parts, Certainty.SURE)
    if holdings is not None:
        left.take(list(resized(left.old, left.new, holdings)))
    for parts in ways:
        left.pair(holdings, parts, Certainty.LIKELY)
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
