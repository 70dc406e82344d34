"""Which family is which: the pairs that are most alike together, and how far the next best are."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from surgery_cli.matching.candidates import Candidates, shape_of
from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form

_NEIGHBOURS: Final = 0.5
"""How much it counts that what stands beside two leaves is paired, too."""
_ROUNDS: Final = 3
_ALONE: Final = 1e3
"""What it costs that a family stays without a pair: far more than any pair costs."""


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


def assigned(
    candidates: Candidates,
    evidence: Callable[[Family, Family], float] = lambda _old, _new: 0.0,
    chosen: Iterable[tuple[int, int]] | None = None,
) -> list[Match]:
    """The pairs of families, as many as there are, such that their names are most alike in sum.

    ``evidence`` is what else speaks for a pair, or against it; ``chosen``: the only ones to choose from.
    """
    olds, news = candidates.olds, candidates.news
    table = candidates.table(chosen)
    if not table:
        return []
    names = {
        (i, j): candidates.likeness.of(olds[i].meaning, news[j].meaning)
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
        near = _with_neighbours(names, pairs, olds, news, candidates.settled)
        scores = {pair: score + beside[pair] for pair, score in near.items()}
    margins = _margins(pairs, scores)
    rivals_of_old, rivals_of_new = candidates.rivals()
    taken_of_old, taken_of_new = candidates.settled_rivals()
    matches = []
    for i, j in pairs:
        is_last = rivals_of_old[i] == rivals_of_new[j] == 1
        is_only = (
            is_last
            and shape_of(olds[i]) not in taken_of_old
            and shape_of(news[j]) not in taken_of_new
        )
        margin = math.inf if is_last else margins.get((i, j), names[i, j])
        matches.append(Match(olds[i], news[j], tuple(table[i, j]), names[i, j], margin, is_only))
    return matches


def _margins(
    pairs: Sequence[tuple[int, int]], scores: Mapping[tuple[int, int], float]
) -> dict[tuple[int, int], float]:
    """How far each pair is ahead of the next best, where there is one."""
    rows, columns = defaultdict(list), defaultdict(list)
    for i, j in scores:
        rows[i].append(j)
        columns[j].append(i)
    partner, rival = dict(pairs), {j: i for i, j in pairs}
    found = {}
    for i, j in pairs:
        others = [_ahead(scores, i, j, rival.get(other), other) for other in rows[i] if other != j]
        others += [_ahead(scores, i, j, one, partner.get(one)) for one in columns[j] if one != i]
        if others:
            found[i, j] = min(others)
    return found


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


def _best(scores: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """The assignment of the highest sum, of as many pairs as there can be; time grows with the number of scores.

    Source: scipy.sparse.csgraph.min_weight_full_bipartite_matching (Jonker and Volgenant's algorithm, sparse).
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    rows = {i: n for n, i in enumerate(dict.fromkeys(i for i, _ in scores))}
    columns = {j: n for n, j in enumerate(dict.fromkeys(j for _, j in scores))}
    highest = max(scores.values())
    places = [(rows[i], columns[j], 1 + highest - score) for (i, j), score in scores.items()]
    places += [(n, len(columns) + n, _ALONE) for n in rows.values()]
    at, to, prices = (np.array(side) for side in zip(*places, strict=True))
    shape = (len(rows), len(columns) + len(rows))
    graph = coo_array((prices, (at, to)), shape=shape).tocsr()
    # SciPy 1.13 keeps the indices as wide as they are given, and takes them narrow alone
    graph.indices, graph.indptr = graph.indices.astype("i4"), graph.indptr.astype("i4")
    found = min_weight_full_bipartite_matching(graph)
    olds, news = list(rows), list(columns)
    return sorted((olds[a], news[b]) for a, b in zip(*found, strict=True) if b < len(news))


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
