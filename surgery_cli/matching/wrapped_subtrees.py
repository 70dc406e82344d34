"""Nodes that others fill: parts of a subtree that stand one by one elsewhere, under the same last keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from surgery_cli.matching.structures import Node
from surgery_cli.tree.paths import Key, LeafPath


def shared_keys(one: Sequence[Key], other: Sequence[Key]) -> int:
    """How many first keys two paths have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


_MOST: Final = 16
"""Of more of one name and structure none is taken for the nearest."""


def filled(
    inner: Sequence[Node], outer: Sequence[Node]
) -> Iterator[tuple[Node, list[tuple[Node, Node]]]]:
    """Whole nodes of ``outer`` that whole ones of ``inner`` fill, with the parts: what fills, and where it comes."""
    named: dict[Hashable, list[Node]] = defaultdict(list)
    for node in inner:
        if node.is_whole:
            named[node.path[-1], node.structure].append(node)
    claims: Counter[LeafPath] = Counter()
    found: list[tuple[Node, list[tuple[Node, Node]]]] = []
    tops = [(n, node) for n, node in enumerate(outer) if node.is_top and node.leaves > 1]
    for place, top in tops:
        parts: list[tuple[Node, Node]] = []
        done = LeafPath()
        for n in range(place + 1, len(outer)):
            node = outer[n]
            if not node.path.is_below(top.path):
                break
            if done and node.path.is_below(done):
                continue
            candidates = named[node.path[-1], node.structure]
            fitting = _nearest(node.path, candidates) if len(candidates) <= _MOST else []
            if len(fitting) == 1 and not any(fitting[0] is part for part, _ in parts):
                parts.append((fitting[0], node))
                done = node.path
        if parts and sum(node.leaves for _, node in parts) == top.leaves:
            claims.update(part.path for part, _ in parts)
            found.append((top, parts))
    for top, parts in found:
        if all(claims[part.path] == 1 for part, _ in parts):
            yield top, parts


def _nearest(path: LeafPath, candidates: Sequence[Node]) -> list[Node]:
    """Those that share most keys with ``path``: the layer in the params, not its twin in the optimizer state."""
    shared = [shared_keys(path, other.path) for other in candidates]
    return [one for one, count in zip(candidates, shared, strict=True) if count == max(shared)]
