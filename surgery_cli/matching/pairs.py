"""Pairs of families: how sure each is, why, and by which form."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from surgery_cli.matching.assignment import Match, assigned
from surgery_cli.matching.contents import Holdings, can_be
from surgery_cli.matching.families import Family, families_of
from surgery_cli.matching.forms import Form, forms
from surgery_cli.matching.fused import Fusion, fusions, with_parts
from surgery_cli.matching.vocabulary import CUSTOMS
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

Leaves: TypeAlias = Mapping[LeafPath, LeafSpec]
_Sort: TypeAlias = tuple[str, str, int]

_ALIKE: Final = 0.5
"""From here on names say the same."""
_SOMEWHAT: Final = 0.3
_TIED: Final = "its values are the same, bit by bit, as those of another pair: tied"
_AHEAD: Final = 0.06
"""By so much the names of a pair must be more alike than those of the next best."""


class Certainty(StrEnum):
    """How sure a pair is."""

    SURE = "sure"
    """Its values are the same, bit by bit; or, where no values can be compared, nothing else on either side has its
    shape, only one order of axes gives it, and the names say the same."""
    LIKELY = "likely"
    GUESS = "guess"
    """No more than what was left: it is no part of the plan."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Leaves of the old tree and what they are in the new one."""

    old: Family
    new: Family
    form: Form
    certainty: Certainty
    why: tuple[str, ...]
    is_other: bool = False
    """True if both have values, and they differ."""

    @property
    def means_one_thing(self) -> bool:
        """True if both names say the same by the vocabulary, not only much of it."""
        return self.old.meaning.says_as(self.new.meaning)

    @property
    def is_move(self) -> bool:
        """True if leaves change their places alone."""
        form = self.form
        return (
            form.arrangement.is_identity and form.stack is form.unstack is None and not self.casts
        )

    @property
    def casts(self) -> bool:
        """True if the dtypes differ."""
        return self.old.spec.dtype != self.new.spec.dtype


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
        found = _judged(assigned(here, there, _evidence(holdings), settled), holdings)
        good = [pair for pair in found if _RANKS.index(pair.certainty) >= _RANKS.index(least)]
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


def _evidence(holdings: Holdings | None) -> Callable[[Family, Family], float]:
    """What values add to the likeness of names: far more than names can say, if they are the same."""
    if holdings is None:
        return lambda _old, _new: 0.0

    def weighed(old: Family, new: Family) -> float:
        agree = holdings.agree(old, new)
        return 0.0 if agree is None else 10.0 if agree else -1.0

    return weighed


def _judged(matches: Sequence[Match], holdings: Holdings | None) -> list[Pair]:
    """The matches as pairs; the axes that names leave open are taken as those of others that shapes decide."""
    seen: dict[_Sort, set[str]] = defaultdict(set)
    for match in matches:
        if len(match.forms) == 1:
            seen[_sort(match)].add(match.forms[0].arrangement.sense)
    votes = {sort: next(iter(senses)) for sort, senses in seen.items() if len(senses) == 1}
    return [_judge(match, holdings, votes) for match in matches]


def _sort(match: Match) -> _Sort:
    """What decides about axes by custom: how the weight is called on either side, and how many axes it has here."""
    return match.old.meaning.last, match.new.meaning.last, len(match.old.spec.shape)


def _judge(match: Match, holdings: Holdings | None, votes: Mapping[_Sort, str]) -> Pair:
    form, why_axes = _by_custom(match, votes)
    certainty, why = _by_names(match)
    is_other = False
    if not can_be(match.old.spec, match.new.spec):
        certainty = Certainty.GUESS
        why = [f"{match.old.spec.dtype} there, {match.new.spec.dtype} here"]
    elif holdings is not None:
        agree = holdings.agree(match.old, match.new)
        fitting = [] if agree is False else holdings.fitting(match.old, match.new, match.forms)
        turned = (
            holdings.in_turns(match.old, match.new, match.forms) if agree and not fitting else []
        )
        if agree and (fitting or turned):
            form, certainty = (fitting or turned)[0], Certainty.SURE
            why, why_axes = ["its values are the same, bit by bit"], ""
            if turned:
                why.append("once halves of its axis take turns, as rotary embeddings differ")
        elif fitting:
            form = form if form in fitting else fitting[0]
            certainty = min(certainty, Certainty.LIKELY, key=_RANKS.index)
            why.append("its values are the same, and tell nothing: one number, or few")
            why_axes = ""
        elif agree:
            certainty = Certainty.GUESS
            why = ["its values are the same in an order that no axes explain"]
        else:
            certainty = min(certainty, Certainty.LIKELY, key=_RANKS.index)
            is_other = True
            why.append("its values are others")
    return Pair(
        old=match.old,
        new=match.new,
        form=form,
        certainty=certainty,
        why=tuple(filter(None, (*why, why_axes))),
        is_other=is_other,
    )


_RANKS: Final = (Certainty.GUESS, Certainty.LIKELY, Certainty.SURE)


def _by_custom(match: Match, votes: Mapping[_Sort, str]) -> tuple[Form, str]:
    """The form to take where values do not tell, and what speaks for it."""
    first, *others = match.forms
    if not others:
        return first, ""
    sort = _sort(match)
    if sort in votes and (form := _of_sense(match, votes[sort])):
        return form, "its axes are taken as those of others of its name, which their shape decides"
    if sort in CUSTOMS and (form := _of_sense(match, CUSTOMS[sort])):
        return form, "its axes are taken as is the custom: its shape does not tell them"
    return first, "its axes are taken in their order: its shape does not tell them"


def _of_sense(match: Match, sense: str) -> Form | None:
    return next((form for form in match.forms if form.arrangement.sense == sense), None)


def _by_names(match: Match) -> tuple[Certainty, list[str]]:
    """How sure a match is by shapes and names alone."""
    old, new = match.old, match.new
    why = []
    if str(old) == str(new):
        why.append("the same name")
    elif match.likeness >= _SOMEWHAT:
        why.append("alike in name" if match.likeness >= _ALIKE else "somewhat alike in name")
    if match.is_only:
        why.append("the only one of its shape")
    is_same_role = old.meaning.role == new.meaning.role
    is_plain = len(match.forms) == 1 and match.forms[0].arrangement.keeps_axes_whole
    is_same_order = old.numbers == new.numbers or not (old.numbers and new.numbers)
    if (
        match.is_only
        and is_plain
        and is_same_role
        and is_same_order
        and match.likeness >= _ALIKE
        and len(old.spec.shape) > 0
    ):
        return Certainty.SURE, why
    if is_same_role and (
        (match.is_only and match.likeness >= 0.15)
        or (match.likeness >= _SOMEWHAT and match.margin >= _AHEAD)
    ):
        return Certainty.LIKELY, why
    if not math.isinf(match.margin):
        why.append("others are as near")
    return Certainty.GUESS, why or ["nothing but its size speaks for it"]
