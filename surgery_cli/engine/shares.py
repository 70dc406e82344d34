"""The work of a run, cut by bytes for several processes: whole leaves, and blocks of leaves larger than a share."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.forecast import blocks_of
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.tree.paths import LeafPath

Thing = TypeVar("Thing")


class Share:
    """What one of ``count`` processes does: by default there is one, and it does all.

    Every process cuts the same work in the same way, so that nobody has to tell another.
    """

    def __init__(
        self,
        number: int = 0,
        count: int = 1,
        computed: Iterable[PlannedLeaf] = (),
        copied: Iterable[PlannedLeaf] = (),
    ) -> None:
        """``computed`` leaves pass through memory as values, block by block, ``copied`` ones as they are encoded."""
        self.number, self.count = number, count
        pieces = [*_pieces(list(computed), count)]
        raw = [_Piece(leaf.draft_path, None, leaf.taken_bytes) for leaf in copied]
        self._owners: dict[LeafPath, list[tuple[slice, int]]] = {}
        self._copiers: dict[LeafPath, int] = {}
        self.bytes = [0] * count
        """Of every process, how many it writes."""
        every = [*pieces, *raw]
        for piece, owner in zip(every, dealt([p.bytes for p in every], count), strict=True):
            self.bytes[owner] += piece.bytes
            if piece.blocks is None:
                self._copiers[piece.leaf] = owner
            else:
                self._owners.setdefault(piece.leaf, []).append((piece.blocks, owner))

    @property
    def is_all(self) -> bool:
        return self.count == 1

    @property
    def own_bytes(self) -> int:
        return self.bytes[self.number]

    def blocks(self, leaf: PlannedLeaf, blocks: Sequence[Window]) -> Sequence[Window]:
        """The blocks of a leaf that this process makes."""
        if self.is_all:
            return blocks
        owners = self._owners[leaf.draft_path]
        return [block for part, owner in owners if owner == self.number for block in blocks[part]]

    def copies(self, leaf: PlannedLeaf) -> bool:
        """True if this process copies the encoded bytes of a leaf."""
        return self.is_all or self._copiers[leaf.draft_path] == self.number

    def makes(self, leaf: PlannedLeaf) -> bool:
        """True if this process makes a block of a leaf, or copies it."""
        path = leaf.draft_path
        owners = {owner for _, owner in self._owners.get(path, [])} | {self._copiers.get(path)}
        return self.is_all or self.number in owners

    def of(self, things: Sequence[Thing], sizes: Sequence[int]) -> list[Thing]:
        """Which of ``things``, each of so many bytes, this process looks at."""
        owners = dealt(sizes, self.count)
        return [thing for thing, owner in zip(things, owners, strict=True) if owner == self.number]


class _Piece(NamedTuple):
    """What goes to one process: blocks of a leaf, or (None) its encoded bytes."""

    leaf: LeafPath
    blocks: slice | None
    bytes: int


def _pieces(leaves: Sequence[PlannedLeaf], count: int) -> Iterable[_Piece]:
    """Whole leaves, and runs of blocks of those that are larger than a share; a block holds whole stored chunks."""
    sizes = [leaf.spec.bytes if leaf.is_read_whole else leaf.written_bytes for leaf in leaves]
    share = max(-(-sum(sizes) // count), 1)
    for leaf, size in zip(leaves, sizes, strict=True):
        number = -(-size // share)
        if number < 2 or Composition(leaf.recipe).is_whole:
            yield _Piece(leaf.draft_path, slice(None), size)
            continue
        blocks = len(blocks_of(leaf))
        number = min(number, blocks)
        borders = [blocks * part // number for part in range(number + 1)]
        for start, stop in itertools.pairwise(borders):
            yield _Piece(leaf.draft_path, slice(start, stop), size * (stop - start) // blocks)


def dealt(sizes: Sequence[int], count: int) -> list[int]:
    """Who of ``count`` gets each of the pieces, the largest first to whoever has least: no share is a third too large.

    >>> dealt([5, 3, 3, 1], 2)
    [0, 1, 1, 0]
    """
    loads = [(0, number) for number in range(count)]
    owners = [0] * len(sizes)
    for piece in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        load, owner = heapq.heappop(loads)
        owners[piece] = owner
        heapq.heappush(loads, (load + sizes[piece], owner))
    return owners
