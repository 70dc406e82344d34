"""Which leaves of one tree are which of another: fused ones cut, what is sure first, tied ones last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import Family, families_of
from surgery_cli.matching.forms import forms
from surgery_cli.matching.fused import Fusion, fusions, with_parts
from surgery_cli.matching.pairs import RANKS, SAME, Certainty, Leaves, Pair, likeliest
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

    Each time whole families of layers, and then their members one by one.
    """
    left = _Left(old, new)
    for is_sure in (True, False) if holdings else (False,):
        for parts in ((False, False), (False, True), (True, False), (True, True)):
            left.pair(holdings, parts, Certainty.SURE if is_sure else Certainty.LIKELY)
    if holdings is None:
        return Pairing(left.pairs, [], [], left.guesses)
    tied = [(one, other) for other in left.new for one in old]
    twice = [(one, other) for one in left.old for other in new]
    copies = _tied(tied, holdings, lambda pair: pair.new)
    drops = _tied(twice, holdings, lambda pair: pair.old)
    done = {id(pair.new) for pair in copies} | {id(pair.old) for pair in drops}
    guesses = [p for p in left.guesses if id(p.new) not in done and id(p.old) not in done]
    return Pairing(left.pairs, copies, drops, guesses)


class _Left:
    """The families that have no pair yet, and the pairs that there are."""

    def __init__(self, old: list[Family], new: list[Family]) -> None:
        self.old, self.new = old, new
        self.pairs: list[Pair] = []
        self.guesses: list[Pair] = []

    def pair(self, holdings: Holdings | None, parts: tuple[bool, bool], least: Certainty) -> None:
        """Pair what is at least so sure; ``parts``: the families of which side are taken apart."""
        here, there = (
            [one for family in side for one in (family.single() if is_parted else [family])]
            for side, is_parted in zip((self.old, self.new), parts, strict=True)
        )
        settled = [(pair.old, pair.new) for pair in self.pairs]
        found = likeliest(here, there, holdings, settled)
        good = [pair for pair in found if RANKS.index(pair.certainty) >= RANKS.index(least)]
        self.guesses = [pair for pair in found if pair not in good]
        self.pairs += good
        self.old = _without(self.old, {path for pair in good for path in pair.old.members})
        self.new = _without(self.new, {path for pair in good for path in pair.new.members})


def _tied(
    sides: Iterable[tuple[Family, Family]], holdings: Holdings, of: Callable[[Pair], Family]
) -> list[Pair]:
    """Pairs of the same values, one for each family ``of`` the side that is left; the other is paired already."""
    found: dict[int, Pair] = {}
    for old, new in sides:
        ways = [form for form in forms(old, new) if form.stack is form.unstack is None]
        if not ways or not holdings.agree(old, new):
            continue
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
