"""Arrays whose values stand in a file at steps: transposed, cut out of a larger one, repeated, or byte-swapped."""

from __future__ import annotations

from io import BufferedReader
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.store.files.contiguous import ArrayInFile, read_into
from surgery_cli.tree.dtypes import COMPLEX_PARTS, item_bytes

if TYPE_CHECKING:
    import numpy as np

_SLAB_BYTES: Final = 16 << 20
"""At most this many bytes beside the result are held while values are picked out of them."""
_CLOSE_BYTES: Final = 64 << 10
"""What lies so close together is read at once, however little of it is wanted."""
_SPARSE: Final = 4
"""Where less than one value in so many is wanted, each run of them is read by itself."""


class StridedArray(ArrayInFile, frozen=True, kw_only=True):
    """An array whose value at an index stands at byte ``offset`` plus the sum of index times stride, in elements."""

    offset: int
    strides: tuple[int, ...]
    is_swapped: bool = False
    """Its bytes stand in the order of other machines."""

    def fill(self, file: BufferedReader, bounds: list[range], block: np.ndarray[Any, Any]) -> None:
        start = sum(b.start * step for b, step in zip(bounds, self.strides, strict=True))
        order = sorted(range(block.ndim), key=lambda axis: -self.strides[axis])
        steps = tuple(self.strides[axis] for axis in order)
        self._fill(file, start, steps, block.transpose(order))

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
                # as integers: before 0.5.4 ml_dtypes gives bfloat16 back unswapped, and says nothing
                part = item // 2 if self.dtype in COMPLEX_PARTS else item
                slab = slab.view(f"u{part}").byteswap().view(target.dtype)
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
