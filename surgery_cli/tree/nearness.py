"""Which of many names is the one that was meant, if any is close enough to be worth saying."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable, Iterator

_LONGEST = 500
"""What is longer is no slip of the pen, and comparing it would take minutes."""
_LEAST_ALIKE = 0.6
"""Of two paths: how much of them must be the same, in order."""


def nearest(text: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """The candidates that ``text`` may be a slip for, best first; none rather than a far one.

    Names are near that are one typing error apart for every three letters, or of which one begins the other; paths
    that are mostly the same; and a path one of whose keys is near to a name. Comparing texts takes long, so only
    those that share most keys with ``text`` are compared.

    >>> nearest("kernl", ["kernel", "bias"]), nearest("help", ["keep"]), nearest("norm", ["normalize"])
    (['kernel'], [], ['normalize'])
    """
    if len(text) > _LONGEST:
        return []
    keys = set(text.split("/"))
    pool = heapq.nsmallest(
        300,
        dict.fromkeys(candidates),
        key=lambda c: (-len(keys.intersection(c.split("/"))), abs(len(c) - len(text))),
    )
    # `[*]` is how a star that is part of a name is typed
    typed = re.sub(r"\[([*?\[{])\]", r"\1", text.strip("/")).casefold()
    if "/" in typed:
        return _near_paths(text, pool, count)
    found = {c: rank for c in sorted(pool, reverse=True) if (rank := _rank(typed, c)) is not None}
    return sorted(found, key=lambda c: found[c])[:count]


def suggested(name: str, there: Iterable[str], form: str = "'{}'") -> str:
    """The question whether the nearest of the names that are ``there`` was meant, in that form; '' if none is near.

    >>> suggested("drpout", ["dropout", "params"], "`--rng {}=0`")
    'did you mean `--rng dropout=0`?'
    """
    near = nearest(name, there, 1)
    return f"did you mean {form.replace('{}', near[0], 1)}?" if near else ""


def _near_paths(text: str, pool: list[str], count: int) -> list[str]:
    found = difflib.get_close_matches(text, pool, n=count, cutoff=_LEAST_ALIKE)
    last = text.rsplit("/", 1)[-1].strip("*").casefold()
    ends = [
        c for c in pool if c not in found and last and _rank(last, c.rsplit("/", 1)[-1]) is not None
    ]
    return found + ends[: count - len(found)]


def _rank(typed: str, candidate: str) -> tuple[int, int, float] | None:
    """How far the candidate is from a name, the key of a path that is closest; None if it is too far."""
    ranks = [
        rank
        for key in candidate.casefold().split("/")
        if (rank := _nearness_of(typed, key)) is not None
    ]
    if not ranks:
        return None
    slips, unlike = min(ranks)
    return slips, candidate.count("/"), unlike


def _nearness_of(typed: str, key: str) -> tuple[int, float] | None:
    if not typed or not key:
        return None
    unlike = 1 - difflib.SequenceMatcher(None, typed, key, autojunk=False).ratio()
    allowed = max(len(typed), len(key)) // 3 or int(typed[0] == key[0])
    short, long = sorted((typed, key), key=len)
    if len(short) > 2 and short != long and short in re.split(r"[^a-z0-9]+", long):
        return 1, unlike  # a whole word of several is no worse than a slip
    if abs(len(typed) - len(key)) <= allowed and (slips := _slips(typed, key)) <= allowed:
        return slips, unlike
    if len(short) > 2 and any(part.startswith(short) for part in _tails(long)):
        return allowed + 1, unlike
    return None


def _tails(name: str) -> Iterator[str]:
    """The name, and what begins with each further word of it."""
    yield name
    yield from (name[found.end() :] for found in re.finditer(r"[^a-z0-9]+", name))


def _slips(a: str, b: str) -> int:
    """How many letters must be put in, left out, changed, or exchanged with their neighbour.

    >>> _slips("kernel", "kerenl"), _slips("help", "keep")
    (1, 2)

    Source: the optimal string alignment distance.
    """
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
