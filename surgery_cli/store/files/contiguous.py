"""Arrays whose values stand one after the other in a file: how blocks of them are read, whatever the format."""

from __future__ import annotations

import math
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.dtypes import item_bytes

if TYPE_CHECKING:
    import numpy as np

_SLAB_BYTES = 16 << 20
"""At most this many bytes beside the result are held while a block is cut out of whole rows."""


class Segment(msgspec.Struct, frozen=True):
    """A run of bytes in a file."""

    offset: int
    length: int


class ArrayInFile(msgspec.Struct, frozen=True):
    """An array whose values stand in a file; ``fill`` says where."""

    path: Path
    shape: tuple[int, ...]
    dtype: str

    def read(self, window: Window | None = None) -> np.ndarray[Any, Any]:
        """The values, or a block of them, C-contiguous.

        Raises:
            CheckpointError: the file has become shorter, or cannot be read.
        """
        import numpy as np

        if window is None:
            window = tuple(slice(0, size) for size in self.shape)
        bounds = [range(*w.indices(n)) for w, n in zip(window, self.shape, strict=True)]
        block = np.empty([len(b) for b in bounds], numpy_dtype(self.dtype))
        if block.size == 0:
            return block
        try:
            with filesystem.reader(self.path) as file:
                self.fill(file, bounds, block)
        except OSError as error:
            raise unreadable(self.path, error) from None
        return block

    def fill(self, file: BufferedReader, bounds: list[range], block: np.ndarray[Any, Any]) -> None:
        """Fill a block with the values that ``bounds`` cut out, one range for each axis."""
        raise NotImplementedError


class ContiguousArray(ArrayInFile, frozen=True, kw_only=True):
    """An array in C order in one or several runs of bytes; ``segments`` together are as long as its values."""

    segments: tuple[Segment, ...]

    def fill(self, file: BufferedReader, bounds: list[range], block: np.ndarray[Any, Any]) -> None:
        self._fill(file, 0, self.shape, bounds, block)

    def _fill(
        self,
        file: BufferedReader,
        start: int,
        shape: tuple[int, ...],
        bounds: list[range],
        block: np.ndarray[Any, Any],
    ) -> None:
        """Read the part of an array of ``shape``, beginning at element ``start``, that ``bounds`` cut out."""
        import numpy as np

        row = math.prod(shape[1:])
        first = start + (bounds[0].start * row if shape else 0)
        if all(len(b) == n for b, n in zip(bounds[1:], shape[1:], strict=True)):
            self._read_run(file, first, block)
            return
        rows = max(_SLAB_BYTES // (row * item_bytes(self.dtype)), 1)
        if rows == 1:  # one row is large: cut inside it
            for index in range(len(bounds[0])):
                self._fill(file, first + index * row, shape[1:], bounds[1:], block[index])
            return
        inner = tuple(slice(b.start, b.stop) for b in bounds[1:])
        for at in range(0, len(bounds[0]), rows):
            count = min(rows, len(bounds[0]) - at)
            slab = np.empty((count, *shape[1:]), block.dtype)
            self._read_run(file, first + at * row, slab)
            block[at : at + count] = slab[(slice(None), *inner)]

    def _read_run(self, file: BufferedReader, start: int, target: np.ndarray[Any, Any]) -> None:
        """Fill ``target`` (C-contiguous) with the values from element ``start`` on."""
        import numpy as np

        buffer = target.reshape(-1).view(np.uint8).data
        skip = start * item_bytes(self.dtype)
        done = 0
        for segment in self.segments:
            if skip >= segment.length:
                skip -= segment.length
                continue
            count = min(segment.length - skip, len(buffer) - done)
            read_into(self.path, file, segment.offset + skip, buffer[done : done + count])
            done += count
            skip = 0
        assert done == len(buffer)


def read_into(path: Path, file: BufferedReader, offset: int, buffer: memoryview) -> None:
    """Fill ``buffer`` with the bytes of a file from ``offset`` on.

    Raises:
        CheckpointError: the file has become shorter.
    """
    done = 0
    while done < len(buffer):
        file.seek(offset + done)
        got = file.readinto(buffer[done : done + (1 << 30)])
        if not got:
            raise CheckpointError(
                f"'{path}' has become shorter while it was open",
                why=f"bytes at {offset + done} are no longer there",
                fix="wait until whatever writes it is done, then run the command again",
            )
        done += got
