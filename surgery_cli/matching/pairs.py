"""Pairs of families: how sure each is, why, and by which form."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from surgery_cli.matching.arrangements import Arrangement
from surgery_cli.matching.assignment import Match, assigned
from surgery_cli.matching.axis_doubts import Sort, doubtful_axes, sort_of_axes
from surgery_cli.matching.candidates import Candidates
from surgery_cli.matching.contents import Holdings, can_be
from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form
from surgery_cli.matching.layer_orders import in_order
from surgery_cli.matching.same_values import same_values
from surgery_cli.matching.vocabulary import CUSTOMS
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import listed

Leaves: TypeAlias = Mapping[LeafPath, LeafSpec]

_ALIKE: Final = 0.5
"""From here on names say the same."""
_SOMEWHAT: Final = 0.3
_FEW: Final = "its values are the same: one number, or few"
SAME: Final = "its values are the same, bit by bit"
OTHERS: Final = "its values are others"
_SIBLINGS: Final = "its axes, or those of what stands beside it, would be in another order"
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
    is_of_subtree: bool = False
    """True if they moved with a subtree, or by the record: names need not say the same."""

    @property
    def means_one_thing(self) -> bool:
        """True if both names say the same by the vocabulary, not only much of it."""
        return self.old.meaning.says_as(self.new.meaning)

    @property
    def is_move(self) -> bool:
        """True if leaves change their places alone."""
        form = self.form
        return form == Form(form.arrangement) and form.arrangement.is_identity and not self.casts

    @property
    def changes_place(self) -> bool:
        """True if a rename moves it: not where a list stands for a dict whose keys are numbers."""
        both = zip(self.old.members, self.new.members, strict=False)
        count = len(self.old.members), len(self.new.members)
        return count[0] != count[1] or any(old.spelling != new.spelling for old, new in both)

    @property
    def widens(self) -> bool:
        """True if the new dtype has more bits: then it is taken first, else last."""
        return self.casts and item_bytes(self.new.spec.dtype) > item_bytes(self.old.spec.dtype)

    @property
    def casts(self) -> bool:
        """True if the dtypes differ."""
        return self.old.spec.dtype != self.new.spec.dtype


def moved_pair(
    old: Family, new: Family, certainty: Certainty, why: str, holdings: Holdings | None
) -> Pair:
    """The pair of leaves of two subtrees that are one, as they stand there; what values say of it, if there are any."""
    form, said = Form(Arrangement()), [why]
    pair = Pair(old=old, new=new, form=form, certainty=certainty, why=(why,), is_of_subtree=True)
    if not old.spec.has_array:
        return pair
    if not can_be(old.spec, new.spec):
        said.append(f"{old.spec.dtype} there, {new.spec.dtype} here")
        return msgspec.structs.replace(pair, certainty=Certainty.LIKELY, why=tuple(said))
    if holdings is None:
        return pair
    match = Match(old, new, (form,), likeness=1.0, margin=math.inf, is_only=False)
    judged = _by_values(match, holdings, form, certainty, said)
    return msgspec.structs.replace(judged, is_of_subtree=True)


def _evidence(holdings: Holdings | None) -> Callable[[Family, Family], float]:
    """What values add to the likeness of names: far more than names can say, if they are the same."""
    if holdings is None:
        return lambda _old, _new: 0.0

    def weighed(old: Family, new: Family) -> float:
        agree = holdings.agree(old, new)
        return 0.0 if agree is None else 10.0 if agree else -1.0

    return weighed


def likeliest(
    olds: Sequence[Family],
    news: Sequence[Family],
    holdings: Holdings | None,
    settled: Sequence[tuple[Family, Family]],
    *,
    by_values: bool,
) -> list[Pair]:
    """The pairs of families that are most alike together, guesses too; ``settled`` are those that there are.

    ``by_values``: of those alone that hold the same. The axes that names leave open are taken as those of others that
    shapes decide.
    """
    chosen = same_values(olds, news, holdings) if holdings is not None and by_values else None
    matches = assigned(Candidates(olds, news, settled), _evidence(holdings), chosen)
    seen: dict[Sort, set[str]] = defaultdict(set)
    for match in matches:
        if len(match.forms) == 1:
            seen[sort_of_axes(match)].add(match.forms[0].arrangement.sense)
    votes = {sort: next(iter(senses)) for sort, senses in seen.items() if len(senses) == 1}
    doubted = doubtful_axes(matches)
    return [
        _judge(match, holdings, votes, is_doubted=place in doubted)
        for place, match in enumerate(matches)
    ]


def _judge(
    match: Match, holdings: Holdings | None, votes: Mapping[Sort, str], *, is_doubted: bool
) -> Pair:
    form, why_axes = _by_custom(match, votes)
    certainty, why = _by_names(match)
    if is_doubted:
        certainty, why = Certainty.GUESS, [*why, _SIBLINGS]
    if not can_be(match.old.spec, match.new.spec):
        certainty = Certainty.GUESS
        why = [f"{match.old.spec.dtype} there, {match.new.spec.dtype} here"]
    elif holdings is not None:
        return _by_values(match, holdings, form, certainty, [*why, why_axes])
    return Pair(
        old=match.old,
        new=match.new,
        form=form,
        certainty=certainty,
        why=tuple(filter(None, (*why, why_axes))),
    )


def _by_values(
    match: Match, holdings: Holdings, form: Form, certainty: Certainty, why: list[str]
) -> Pair:
    """The pair, as values say; ``form``, ``certainty`` and ``why`` are what names and shapes say."""
    old, new = match.old, match.new
    agree = holdings.agree(old, new)
    at_most = min(certainty, Certainty.LIKELY, key=RANKS.index)

    def pair(form: Form, certainty: Certainty, *why: str, is_other: bool = False) -> Pair:
        said = tuple(filter(None, why))
        return Pair(old=old, new=new, form=form, certainty=certainty, why=said, is_other=is_other)

    if agree is not False:
        fitting = holdings.fitting(old, new, match.forms)
        if fitting and agree:
            return pair(fitting[0], Certainty.SURE, SAME)
        if fitting:
            chosen = form if form in fitting else fitting[0]
            return pair(chosen, at_most, *why, _FEW)
        turned = holdings.in_turns(old, new, match.forms) if agree else []
        if turned:
            return pair(turned[0], Certainty.SURE, SAME, "once halves of its axis take turns")
        if agree and holdings.is_large(old, new):
            return pair(form, Certainty.GUESS, _untried(match, holdings.bytes_to_compare(old, new)))
        if agree and (ordered := in_order(old, new, match.forms, holdings)):
            old, new, form = ordered
            return pair(form, Certainty.SURE, SAME, "its layers stand in another order")
        if agree:
            return pair(form, Certainty.GUESS, _unexplained(match))
    if certainty is Certainty.GUESS or holdings.is_large(old, new):
        return pair(form, certainty, *why, OTHERS, is_other=True)
    found = holdings.changed(old, new, match.forms)
    if found is None:
        return pair(form, at_most, *why, OTHERS, is_other=True)
    change, exact = found
    how = f"by {change.op} {change.number}"
    if exact is not None:
        is_telling = holdings.is_telling(new)
        said = [f"{SAME} {how}"] if is_telling else [*why, f"{_FEW} {how}"]
        return pair(exact, Certainty.SURE if is_telling else at_most, *said)
    rounded = f"{OTHERS}: {how} they would be the same but for rounding"
    return pair(form, at_most, *why, rounded, is_other=True)


def _unexplained(match: Match) -> str:
    """What is said where values are the same in another order, with the orders that were tried."""
    tried = listed((way.text or "as they stand" for way in match.forms), 4, word="and")
    layers = any((way.stack, way.unstack) != (None, None) for way in match.forms)
    more = ", layers in every order" if layers else ""
    return (
        "its values are the same in an order that is none of those tried: "
        f"{tried}, each with halves of an axis in turns{more}"
    )


def _untried(match: Match, enough: int) -> str:
    """The same where memory has no room to try most orders; those that keep axes whole were tried part by part."""
    ways = [way.text or "as they stand" for way in match.forms if way.arrangement.keeps_axes_whole]
    than = (
        f"another order than {listed(ways, 4, word='or')}"
        if ways
        else "an order that was not tried"
    )
    room = f"`--memory {-(-enough // (1 << 20))}MiB` has room to try more"
    return f"its values are the same in {than}: {room}"


RANKS: Final = (Certainty.GUESS, Certainty.LIKELY, Certainty.SURE)


def _by_custom(match: Match, votes: Mapping[Sort, str]) -> tuple[Form, str]:
    """The form to take where values do not tell, and what speaks for it."""
    first, *others = match.forms
    if not others:
        return first, ""
    sort = sort_of_axes(match)
    if sort in votes and (form := _of_sense(match, votes[sort])):
        here, there, _ = sort
        called = f"'{here}'" if here == there else f"'{here}' to '{there}'"
        return form, f"its axes are taken as those of others, {called}, whose shapes decide them"
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
        why.append("no other has, or can be given, its shape")
    elif match.is_last:
        why.append("the only one left that has, or can be given, its shape")
    is_same_role = old.meaning.role == new.meaning.role
    is_plain = len(match.forms) == 1 and match.forms[0].arrangement.keeps_axes_whole
    is_same_order = old.numbers == new.numbers or not (old.numbers and new.numbers)
    if (
        match.is_only
        and is_plain
        and is_same_role
        and is_same_order
        and match.likeness >= _ALIKE
        and old.meaning.does_not_contradict(new.meaning)
        and len(old.spec.shape) > 0
    ):
        return Certainty.SURE, why
    if is_same_role and (
        (match.is_last and match.likeness >= 0.15)
        or (match.likeness >= _SOMEWHAT and match.margin >= _AHEAD)
    ):
        return Certainty.LIKELY, why
    if not match.is_last:
        why.append("others are as near")
    return Certainty.GUESS, why or ["nothing but its size speaks for it"]
