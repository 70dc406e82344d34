"""In which order leaves are listed, where numbers in names count as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, pairwise, starmap
from typing import Final

from surgery_cli.tree.paths import Key, LeafPath

_DIGITS: Final = re.compile("([0-9]+)")
_SEVERAL_DIGITS: Final = re.compile("[0-9]{2}")
_ALIKE: Final = str.maketrans(dict.fromkeys("123456789", "0"))


def in_listed_order(leaves: Iterable[LeafPath]) -> list[LeafPath]:
    """The leaves in stored order; but where keys stand in the order of their texts, in that of their numbers.

    >>> [str(path) for path in in_listed_order(LeafPath((f"l{n}", "w")) for n in ("1", "10", "2"))]
    ['l1/w', 'l2/w', 'l10/w']
    """
    paths = list(leaves)
    texts = sorted(key for key in set(chain.from_iterable(paths)) if isinstance(key, str))
    if all(starmap(_is_by_number, pairwise(texts))):  # wherever they stand, nothing moves
        return paths
    numbered = {key for key in texts if _SEVERAL_DIGITS.search(key)}
    nodes = {
        path[:depth]
        for path in paths
        if not numbered.isdisjoint(path)
        for depth, key in enumerate(path)
        if key in numbered
    }
    depths = sorted({len(node) for node in nodes})
    keys: dict[tuple[Key, ...], dict[Key, None]] = {node: {} for node in nodes}
    starts: dict[tuple[Key, ...], int] = {}
    for number, path in enumerate(paths):
        for depth in depths:
            if (node := path[:depth]) in keys and len(path) > depth:
                keys[node][path[depth]] = None
                starts.setdefault(node, number)
    places = {node: found for node, below in keys.items() if (found := _places(list(below)))}
    if not places:
        return paths

    orders: dict[tuple[Key, ...], list[int]] = {}
    """Of what the paths begin with, up to where keys move: the few that many leaves have in common."""
    for number, path in enumerate(paths):
        if (head := path[: depths[-1] + 1]) not in orders:
            moved = ((head[:depth], head[depth]) for depth in depths if depth < len(head))
            inside = ((starts[node], places[node][key]) for node, key in moved if node in places)
            orders[head] = [*chain(*inside), number]
    return sorted(paths, key=lambda path: orders[path[: depths[-1] + 1]])


def _places(keys: list[Key]) -> dict[Key, int]:
    """Where each key is listed among its siblings; nothing if they stay where they are."""
    texts = [key for key in keys if isinstance(key, str)]
    if len(texts) < len(keys) or any(a > b for a, b in pairwise(texts)):
        return {}
    ordered = sorted(texts, key=_by_number)
    return {} if ordered == texts else {key: place for place, key in enumerate(ordered)}


def _is_by_number(a: str, b: str) -> bool:
    """True if ``a``, which comes before ``b`` as text, comes before it by its numbers, too."""
    if a.translate(_ALIKE) == b.translate(_ALIKE):  # all numbers have as many digits
        return True
    return _by_number(a) < _by_number(b)


def _by_number(text: str) -> list[tuple[int, int, str]]:
    return [
        (1, int(part), part) if part.isdecimal() else (0, 0, part) for part in _DIGITS.split(text)
    ]
