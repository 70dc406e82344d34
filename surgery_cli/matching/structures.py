"""Nodes by their structure: which keys stand below them and what each holds; and which nodes stand elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple, TypeAlias

from surgery_cli.tree.nested import Branch
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

DIGITS: Final = re.compile(r"\d+")

Template: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = tuple[int, ...]
Subtree: TypeAlias = Branch[LeafSpec] | LeafSpec


def sort_of(spec: LeafSpec) -> Hashable:
    """What is the same of two leaves of which a restore takes one for the other, dtypes aside.

    What a restore refuses as its target is like nothing.
    """
    if spec.kind is LeafKind.NO_TARGET:
        return object()
    if spec.kind in (LeafKind.EMPTY, LeafKind.STRING):
        return spec.kind
    if spec.kind is LeafKind.KEY:
        return spec.kind, spec.key_impl, spec.shape
    return spec.shape


def numbered(path: LeafPath) -> tuple[Template, Numbers]:
    """A path without its numbers, and the numbers.

    >>> numbered(LeafPath(("params", "layers_3", "mlp")))
    (('params', 'layers_#', 'mlp'), (3,))
    """
    texts = [str(key) for key in path]
    numbers = tuple(int(digits) for text in texts for digits in DIGITS.findall(text))
    return tuple(DIGITS.sub("#", text) for text in texts), numbers


class Node(NamedTuple):
    """A node or leaf that has no counterpart in its own place.

    ``structure`` is the same for two nodes of which a restore takes one for the other. ``leaves`` are those
    that hold something, ``elements`` theirs. ``is_whole``: no part of what the other tree has not there. ``is_top``:
    itself what the other tree has not there, or has another thing for.
    """

    path: LeafPath
    structure: Hashable
    leaves: int
    elements: int
    is_whole: bool
    is_top: bool
    is_leaf: bool


class Structures:
    """The structures of two trees, each under a number of its own."""

    def __init__(self, old: Branch[LeafSpec], new: Branch[LeafSpec]) -> None:
        self._known: dict[Hashable, int] = {}
        tops = [*_unmatched(old, new, LeafPath())]
        heres = {path for path, is_old, _ in tops if is_old}
        theres = {path for path, _, is_new in tops if is_new}
        self.old, every = self._elsewhere(old, heres)
        self.new, others = self._elsewhere(new, theres)
        self._every = every, others

    def is_only(self, structure: Hashable) -> bool:
        """True if neither tree has it twice, what stands in its own place included."""
        return all(counts[structure] == 1 for counts in self._every)

    def _elsewhere(
        self, tree: Branch[LeafSpec], tops: set[LeafPath]
    ) -> tuple[list[Node], Counter[Hashable]]:
        """The nodes without counterpart, each before those below it; and how often each structure is there."""
        every: Counter[Hashable] = Counter()
        found: list[Node | None] = []

        def visit(path: LeafPath, subtree: Subtree, *, is_inside: bool) -> tuple[Node, bool]:
            place = len(found)
            found.append(None)
            is_top = not is_inside and path in tops
            is_here = is_inside or is_top
            if isinstance(subtree, Branch):
                below = [
                    (key, *visit(path / (key,), child, is_inside=is_here))
                    for key, child in subtree.items()
                ]
                is_here = is_here or all(is_child for _, _, is_child in below)
                leaves = sum(child.leaves for _, child, _ in below)
                elements = sum(child.elements for _, child, _ in below)
                what: Hashable = frozenset((key, child.structure) for key, child, _ in below)
            else:
                leaves = int(subtree.kind is not LeafKind.EMPTY)
                elements, what = subtree.size if leaves else 0, sort_of(subtree)
            structure = self._known.setdefault(what, len(self._known))
            every[structure] += 1
            is_leaf = isinstance(subtree, LeafSpec)
            node = Node(path, structure, leaves, elements, not is_inside, is_top, is_leaf)
            if is_here and leaves and path:
                found[place] = node
            return node, is_here

        visit(LeafPath(), tree, is_inside=False)
        return [node for node in found if node is not None], every


def _unmatched(
    old: Branch[LeafSpec], new: Branch[LeafSpec], path: LeafPath
) -> Iterator[tuple[LeafPath, bool, bool]]:
    """The highest places at which two trees differ, and which of them have something there."""
    for key in dict.fromkeys([*old, *new]):
        one, other = old.get(key), new.get(key)
        if isinstance(one, Branch) and isinstance(other, Branch) and _are_of_one_sort(one, other):
            yield from _unmatched(one, other, path / (key,))
        elif not (
            isinstance(one, LeafSpec)
            and isinstance(other, LeafSpec)
            and sort_of(one) == sort_of(other)
        ):
            yield path / (key,), one is not None, other is not None


def _are_of_one_sort(one: Branch[LeafSpec], other: Branch[LeafSpec]) -> bool:
    """True for two lists, and for two dicts."""
    return any(isinstance(key, int) for key in one) == any(isinstance(key, int) for key in other)
