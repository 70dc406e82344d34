"""Arrays whose values stand in a file at steps: transposed, cut out of a larger one, repeated, or byte-swapped."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import read_into
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.dtypes import item_bytes

if TYPE_CHECKING:
    import numpy as np

_SLAB_BYTES: Final = 16 << 20
"""At most this many bytes beside the result are held while values are picked out of them."""
_CLOSE_BYTES: Final = 64 << 10
"""What lies so close together is read at once, however little of it is wanted."""
_SPARSE: Final = 4
"""Where less than one value in so many is wanted, each run of them is read by itself."""


class StridedArray(msgspec.Struct, frozen=True):
    """An array whose value at an index stands at byte ``offset`` plus the sum of index times stride, in elements."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    is_swapped: bool = False
    """Its bytes stand in the order of other machines."""

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
        start = sum(b.start * step for b, step in zip(bounds, self.strides, strict=True))
        order = sorted(range(block.ndim), key=lambda axis: -self.strides[axis])
        steps = tuple(self.strides[axis] for axis in order)
        try:
            with filesystem.reader(self.path) as file:
                self._fill(file, start, steps, block.transpose(order))
        except OSError as error:
            raise unreadable(self.path, error) from None
        return block

    def _fill(
        self,
        file: BufferedReader,
        start: int,
        steps: tuple[int, ...],
        target: np.ndarray[Any, Any],
    ) -> None:
        """Fill ``target``, whose axes come by falling steps, with the values from element ``start`` on."""
        import numpy as np

        item = item_bytes(self.dtype)
        reach = [(n - 1) * step for n, step in zip(target.shape, steps, strict=True)]
        span = 1 + sum(reach)
        is_close = span * item <= _CLOSE_BYTES
        is_dense = span <= _SPARSE * target.size
        if is_close or (is_dense and span * item <= _SLAB_BYTES):
            slab = np.empty(span, target.dtype)
            read_into(self.path, file, self.offset + start * item, slab.view(np.uint8).data)
            if self.is_swapped:
                slab = slab.byteswap()
            strides = [step * item for step in steps]
            target[...] = np.lib.stride_tricks.as_strided(slab, target.shape, strides)
            return
        if len(target) == 1:
            self._fill(file, start, steps[1:], target[0])
            return
        inside = span - reach[0]
        fits = (_SLAB_BYTES // item - inside) // steps[0] + 1 if steps[0] else len(target)
        count = max(min(fits, len(target) - 1), 1) if is_dense else 1
        for at in range(0, len(target), count):
            self._fill(file, start + at * steps[0], steps, target[at : at + count])
