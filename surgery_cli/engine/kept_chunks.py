"""Decoded chunks that stay in memory from one leaf to the next, where both are made of parts of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.reads import partly_read
from surgery_cli.engine.leaf_in_work import LeafInWork
from surgery_cli.engine.reading import Readable
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.tree.paths import LeafPath


class KeptChunks:
    """The stored leaves whose chunks may stay: those of which leaves in work, or the next one, are made.

    A leaf that is read to its end lets its chunks go by itself; of one that is read in part, nobody else knows when
    that was all. What stayed longer would count against no budget. ``end`` may be called from threads.
    """

    def __init__(self, sources: Mapping[str, Readable]) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._in_work: dict[LeafPath, Iterable[LeafRef]] = {}
        self._next: Iterable[LeafRef] = ()

    def one_by_one(self, leaves: Sequence[PlannedLeaf]) -> Iterator[PlannedLeaf]:
        """The leaves in the order in which they are written."""
        for leaf, following in zip_longest(leaves, leaves[1:]):
            with self._lock:
                self._next = () if following is None else partly_read(following.recipe)
            yield leaf

    def begin(self, leaf: LeafInWork) -> None:
        """Blocks of a leaf are made from now on, if any are."""
        if leaf.left:
            with self._lock:
                self._in_work[leaf.planned.draft_path] = partly_read(leaf.planned.recipe)

    def end(self, leaf: PlannedLeaf) -> None:
        """The last block of a leaf is made."""
        with self._lock:
            done = set(self._in_work.pop(leaf.draft_path, ()))
            done.difference_update(self._next, *self._in_work.values())
        for ref in done:
            source = self._sources[ref.source]
            found = source.array_of(ref.path) if isinstance(source, Checkpoint) else None
            if found is not None:
                store, array = found
                store.chunk_keeper.let_go(array.name)
