"""Which family is which: the pairs that are most alike together, and how far the next best are."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form, forms
from surgery_cli.matching.words import Likeness

_NEIGHBOURS: Final = 0.5
"""How much it counts that what stands beside two leaves is paired, too."""
_ROUNDS: Final = 3


class Match(msgspec.Struct, frozen=True):
    """Two families that are one; ``likeness`` is that of their names, ``margin`` what it is ahead of the next best.

    ``is_only``: no other family of either tree has so many elements that can be arranged so, of those that are paired
    already neither.
    """

    old: Family
    new: Family
    forms: tuple[Form, ...]
    likeness: float
    margin: float
    is_only: bool

    @property
    def is_last(self) -> bool:
        """True if of those that are not paired yet no other can be arranged so."""
        return math.isinf(self.margin)


Table: TypeAlias = Mapping[tuple[int, int], list[Form]]


def assigned(
    olds: Sequence[Family],
    news: Sequence[Family],
    evidence: Callable[[Family, Family], float] = lambda _old, _new: 0.0,
    settled: Sequence[tuple[Family, Family]] = (),
) -> list[Match]:
    """The pairs of families, as many as there are, such that their names are most alike in sum.

    ``evidence`` is what else speaks for a pair, or against it; ``settled`` are pairs that there are already.
    """
    table = candidates(olds, news)
    if not table:
        return []
    likeness = Likeness([family.meaning for family in (*olds, *news)])
    names = {
        (i, j): likeness.of(olds[i].meaning, news[j].meaning)
        - (0.02 if olds[i].numbers != news[j].numbers else 0)
        + (0.05 if olds[i].template == news[j].template else 0)
        for i, j in table
    }
    beside = {(i, j): evidence(olds[i], news[j]) for i, j in table}
    scores = {pair: name + beside[pair] for pair, name in names.items()}
    pairs: list[tuple[int, int]] = []
    for _ in range(_ROUNDS):
        found = _best(scores)
        if found == pairs:
            break
        pairs = found
        near = _with_neighbours(names, pairs, olds, news, settled)
        scores = {pair: score + beside[pair] for pair, score in near.items()}
    rows, columns = defaultdict(list), defaultdict(list)
    for i, j in scores:
        rows[i].append(j)
        columns[j].append(i)
    partner, rival = dict(pairs), {j: i for i, j in pairs}
    matches = []
    for i, j in pairs:
        others = [_ahead(scores, i, j, rival.get(other), other) for other in rows[i] if other != j]
        others += [_ahead(scores, i, j, one, partner.get(one)) for one in columns[j] if one != i]
        margin = min(others, default=math.inf)
        is_only = not others and not any(
            forms(one, news[j]) or forms(olds[i], other) for one, other in settled
        )
        matches.append(Match(olds[i], news[j], tuple(table[i, j]), names[i, j], margin, is_only))
    return matches


def _ahead(
    scores: Mapping[tuple[int, int], float], i: int, j: int, one: int | None, other: int | None
) -> float:
    """How far a pair is ahead of another that has one of its sides: if both have partners, of changing them."""
    here, there = (i if one is None else one), (j if other is None else other)
    if one is None or other is None:
        return scores[i, j] - scores[(i, there) if one is None else (here, j)]
    if (i, other) in scores and (one, j) in scores:
        kept, changed = scores[i, j] + scores[one, other], scores[i, other] + scores[one, j]
        return (kept - changed) / 2
    return scores[i, j] - scores[(i, other) if (i, other) in scores else (one, j)]


def candidates(olds: Sequence[Family], news: Sequence[Family]) -> Table:
    """What can become what, and how."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for j, new in enumerate(news):
        by_size[new.size].append(j)
    known: dict[object, list[Form]] = {}
    found: dict[tuple[int, int], list[Form]] = {}
    for i, old in enumerate(olds):
        for j in by_size.get(old.size, ()):
            new = news[j]
            key = (len(old.members), old.spec.shape, len(new.members), new.spec.shape)
            if key not in known:
                known[key] = forms(old, new)
            if known[key]:
                found[i, j] = known[key]
    return found


def _best(scores: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """The assignment of the highest sum.

    Source: scipy.optimize.linear_sum_assignment (Crouse, On implementing 2D rectangular assignment algorithms).
    """
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    found = []
    for rows, columns in _components(scores):
        table = np.full((len(rows), len(columns)), -1e3)
        for a, i in enumerate(rows):
            for b, j in enumerate(columns):
                table[a, b] = scores.get((i, j), -1e3)
        for a, b in zip(*linear_sum_assignment(table, maximize=True), strict=True):
            pair = rows[a], columns[b]
            if pair in scores:
                found.append(pair)
    return sorted(found)


def _components(scores: Mapping[tuple[int, int], float]) -> list[tuple[list[int], list[int]]]:
    """Rows and columns that are joined by what can be paired."""
    partners: dict[int, set[int]] = defaultdict(set)
    rivals: dict[int, set[int]] = defaultdict(set)
    for i, j in scores:
        partners[i].add(j)
        rivals[j].add(i)
    found, left = [], dict.fromkeys(partners)
    while left:
        rows, columns, edge = set[int](), set[int](), {next(iter(left))}
        while edge:
            rows |= edge
            columns |= {j for i in edge for j in partners[i]}
            edge = {i for j in columns for i in rivals[j]} - rows
        found.append((sorted(rows), sorted(columns)))
        for i in rows:
            del left[i]
    return found


def _with_neighbours(
    names: Mapping[tuple[int, int], float],
    pairs: Sequence[tuple[int, int]],
    olds: Sequence[Family],
    news: Sequence[Family],
    settled: Sequence[tuple[Family, Family]],
) -> dict[tuple[int, int], float]:
    """The likeness of names, with how many of the leaves beside and around two leaves are paired with each other."""
    here, there = [_nodes(one) for one in olds], [_nodes(one) for one in news]
    votes: dict[tuple[object, object], float] = defaultdict(float)
    chosen = set(pairs)
    for i, j in pairs:
        for node in here[i]:
            for other in there[j]:
                votes[node, other] += names[i, j]
    for old, new in settled:
        for node in _nodes(old):
            for other in _nodes(new):
                votes[node, other] += 1.0
    totals = Counter(node for nodes in (*here, *there) for node in nodes)
    totals += Counter(node for pair in settled for family in pair for node in _nodes(family))
    scores = {}
    for (i, j), name in names.items():
        own = name if (i, j) in chosen else 0.0
        support = max(
            (
                (votes[node, other] - own) / max(totals[node], totals[other])
                for node in here[i]
                for other in there[j]
                if max(totals[node], totals[other]) > 1
            ),
            default=0.0,
        )
        scores[i, j] = name + _NEIGHBOURS * support
    return scores


def _nodes(family: Family) -> list[tuple[str, ...]]:
    """The layer that a leaf belongs to: its path without what it is to the layer; dots part names as slashes do."""
    keys = tuple(part for key in family.template for part in str(key).split("."))
    return [keys[:-1]] if len(keys) > 1 else []
