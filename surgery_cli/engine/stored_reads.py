"""What is read of the stored leaves that one recipe is made of."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from surgery_cli.draft.expression import Recipe, Stored
from surgery_cli.draft.kernel import Kit, Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.finite import all_finite
from surgery_cli.engine.freed_memory import HEAP
from surgery_cli.engine.grid import block_bytes, relative
from surgery_cli.engine.held import Band, Held
from surgery_cli.engine.reading import Readable, RoundsAsItDecodes, Values, read_values
from surgery_cli.store.orbax.chunk_keeper import keeping_no_chunks


class StoredReads:
    """Stored leaves, read window by window; or whole and once, if so asked. May be used from threads.

    Raises (all methods that read):
        CheckpointError: a source cannot be read.
    """

    def __init__(self, sources: Mapping[str, Readable]) -> None:
        self._sources = sources
        self._kept: dict[int, Values] | None = None
        self._lock = threading.Lock()

    def hold(self, part: Recipe, window: Window, held: Held, of: Window | None = None) -> None:
        """Read the stored leaves that a block of a part is made of, unless they are held.

        ``of``: a block in which this one lies, and which is one with it in what is stored: it is read, and let go.
        """
        around = reads(part, window if of is None else of)
        for (stored, read), (_, whole) in zip(reads(part, window), around, strict=True):
            if held.find(stored, read) is None:
                values = self.read(stored, whole)
                if whole != read:
                    values = values[relative(read, whole)].copy()
                held.stored[id(stored)] = (read, values)

    def read_into(self, band: Band, part: Stored, piece: Window) -> None:
        """Read a piece of a stored leaf to where a band has its place."""
        window, values = band.stored[id(part)]
        with keeping_no_chunks():
            values[relative(piece, window)] = self.read(part, piece)

    def keep_all(self) -> None:
        """From now on read stored leaves whole, once, and keep them."""
        self._kept = {}

    def let_go(self) -> None:
        """No more blocks are asked for."""
        self._kept = None

    def rounded(self, of: Composition, window: Window, held: Held, kit: Kit) -> Values | None:
        """A block of a leaf in another dtype, rounded as it is decoded: what is stored is never all in memory.

        None for all else, and where the kernel has to see the values as they are stored.
        """
        if of.rounded is None or not kit.rounds_alike(of.rounded.rounding):
            return None
        stored, rounding = of.rounded
        source = self._sources[stored.ref.source]
        is_held = self._kept is not None or id(stored) in held.stored
        if is_held or not isinstance(source, RoundsAsItDecodes):
            return None
        HEAP.make_room_for_one(block_bytes(stored.spec, window))
        values: Values | None = source.read_rounded(stored.ref.path, window, rounding)
        return values if values is not None and all_finite(values) else None

    def read(self, part: Stored, window: Window) -> Values:
        source, path = self._sources[part.ref.source], part.ref.path
        if part.spec.has_array:
            HEAP.make_room_for_one(block_bytes(part.spec, window))
        if self._kept is None:
            return read_values(source, path, window)
        with self._lock:
            if id(part) not in self._kept:
                self._kept[id(part)] = read_values(source, path)
            return self._kept[id(part)][window]
