"""What can become what: by shape, and of what has one shape what names have in common, so that no tree is too large."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form, forms
from surgery_cli.matching.words import Likeness, Meaning

Table: TypeAlias = dict[tuple[int, int], list[Form]]
"""The forms of each pair, by the places of its families among those of its side."""

_Shaped: TypeAlias = tuple[int, tuple[int, ...]]

_EACH_WITH_EACH: Final = 20_000
"""Pairs of one shape that are all looked at; beyond, those whose names have something in common."""
_RARE: Final = 16
"""So many of one side may have a word in common, or all words but one, to be looked at for its sake."""
_NEAREST: Final = 16
"""So many of those that are most alike in name are kept for each."""


class Candidates:
    """What of two trees can become what; ``settled`` are the pairs that there are already."""

    def __init__(
        self,
        olds: Sequence[Family],
        news: Sequence[Family],
        settled: Sequence[tuple[Family, Family]] = (),
    ) -> None:
        self.olds, self.news = olds, news
        self.likeness = Likeness([family.meaning for family in (*olds, *news)])
        self._here, self._there = _by_shape(olds), _by_shape(news)
        self._forms = _forms_of(self._here, self._there, olds, news)
        self.settled = settled

    def table(self, chosen: Iterable[tuple[int, int]] | None = None) -> Table:
        """The pairs to look at; ``chosen``: of these alone."""
        if chosen is None:
            return {
                pair: ways
                for (one, other), ways in self._forms.items()
                for pair in self.alike(self._here[one], self._there[other])
            }
        found = ((i, j, self._ways(i, j)) for i, j in chosen)
        return {(i, j): ways for i, j, ways in found if ways}

    def alike(self, here: Sequence[int], there: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Pairs of these places; of many, those that are most alike in name."""
        if len(here) * len(there) <= _EACH_WITH_EACH:
            yield from ((i, j) for i in here for j in there)
            return
        ours = {i: self.olds[i].meaning for i in here}
        theirs = {j: self.news[j].meaning for j in there}
        scores = {
            (i, j): self.likeness.of(ours[i], theirs[j])
            for i, j in _with_common_words(ours, theirs)
        }
        ranks: list[Counter[int]] = [Counter(), Counter()]
        for pair in sorted(scores, key=lambda pair: -scores[pair]):
            if any(rank[place] < _NEAREST for rank, place in zip(ranks, pair, strict=True)):
                yield pair
            for rank, place in zip(ranks, pair, strict=True):
                rank[place] += 1

    def _ways(self, i: int, j: int) -> list[Form] | None:
        return self._forms.get((shape_of(self.olds[i]), shape_of(self.news[j])))

    def rivals(self) -> tuple[list[int], list[int]]:
        """How many families of the other side can be given the shape of each."""
        here = {key: len(places) for key, places in self._here.items()}
        there = {key: len(places) for key, places in self._there.items()}
        of_old, of_new = Counter[_Shaped](), Counter[_Shaped]()
        for one, other in self._forms:
            of_old[one] += there[other]
            of_new[other] += here[one]
        return [of_old[shape_of(f)] for f in self.olds], [of_new[shape_of(f)] for f in self.news]

    def settled_rivals(self) -> tuple[set[_Shaped], set[_Shaped]]:
        """The shapes of either side for which what is paired already could have been taken as well."""
        olds, news = [old for old, _ in self.settled], [new for _, new in self.settled]
        of_old = _forms_of(self._here, _by_shape(news), self.olds, news)
        of_new = _forms_of(_by_shape(olds), self._there, olds, self.news)
        return {shape for shape, _ in of_old}, {shape for _, shape in of_new}


def shape_of(family: Family) -> _Shaped:
    """What decides in which ways a family can become another: how many leaves, and their shape."""
    return len(family.members), family.spec.shape


def _by_shape(families: Iterable[Family]) -> dict[_Shaped, list[int]]:
    found: dict[_Shaped, list[int]] = defaultdict(list)
    for place, family in enumerate(families):
        found[shape_of(family)].append(place)
    return found


def _forms_of(
    here: Mapping[_Shaped, Sequence[int]],
    there: Mapping[_Shaped, Sequence[int]],
    olds: Sequence[Family],
    news: Sequence[Family],
) -> dict[tuple[_Shaped, _Shaped], list[Form]]:
    """The ways from one shape to another, where there are some."""
    by_size: dict[int, list[_Shaped]] = defaultdict(list)
    for key, places in there.items():
        by_size[news[places[0]].size].append(key)
    found = {}
    for one, places in here.items():
        old = olds[places[0]]
        for other in by_size.get(old.size, ()):
            ways = forms(old, news[there[other][0]])
            if ways:
                found[one, other] = ways
    return found


def _with_common_words(
    ours: Mapping[int, Meaning], theirs: Mapping[int, Meaning]
) -> dict[tuple[int, int], None]:
    """Pairs that have in common what few of a side have: no more than a constant times the words that there are."""
    sides: list[dict[Hashable, list[int]]] = []
    for meanings in (ours, theirs):
        side: dict[Hashable, list[int]] = defaultdict(list)
        for place, meaning in meanings.items():
            for mark in _marks(meaning):
                side[mark].append(place)
        sides.append(side)
    left, right = sides
    return {
        (i, j): None
        for mark in left.keys() & right.keys()
        if min(len(left[mark]), len(right[mark])) <= _RARE
        for i in left[mark]
        for j in right[mark]
    }


def _marks(meaning: Meaning) -> Iterator[Hashable]:
    """What two names may have in common: a word, all of them, all but one."""
    words = Counter(meaning.words)
    yield from words
    whole = frozenset(words.items())
    yield whole
    yield from (whole - {item} for item in words.items())
