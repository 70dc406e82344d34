"""How the values of a leaf differ between two checkpoints, streamed; NaN equals NaN."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from surgery_cli.engine.grid import block_shape, windows
from surgery_cli.engine.reading import Readable, Values, read_values
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

PART_ELEMENTS = 1 << 16
"""Values are compared in parts of this size: with all that is derived from them they stay in a core's cache."""


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Elements beyond the tolerances, and the largest distances; ``a`` and ``b`` are the values at ``where``."""

    a: str
    b: str
    differing: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    where: tuple[int, ...] | None = None


def value_difference(
    path: LeafPath, spec: LeafSpec, a: Readable, b: Readable, *, rtol: float, atol: float
) -> ValueDifference | None:
    """Compare a leaf whose specs agree; None if no element is apart by more than ``atol + rtol * magnitude``."""
    if not spec.has_array:
        if spec.kind is not LeafKind.STRING or (left := a.read(path)) == (right := b.read(path)):
            return None
        return ValueDifference(a=repr(left), b=repr(right))
    tally = _Tally(rtol, atol)
    for window in windows(spec.shape, block_shape(spec, spec.write_shape)):
        start = tuple(s.start for s in window)
        tally.add(read_values(a, path, window), read_values(b, path, window), start)
    return tally.result()


class _Tally:
    """Counts elements that differ and keeps the largest difference, block by block."""

    def __init__(self, rtol: float, atol: float) -> None:
        self._rtol, self._atol = rtol, atol
        self._differing = 0
        self._max_abs, self._max_rel = -1.0, 0.0
        self._where: tuple[int, ...] = ()
        self._pair: tuple[Any, Any] = (None, None)

    def add(self, a: Values, b: Values, start: tuple[int, ...]) -> None:
        """A block that stands at ``start`` in the leaf."""
        left, right = a.reshape(-1), b.reshape(-1)
        for first in range(0, left.size, PART_ELEMENTS):
            part = slice(first, first + PART_ELEMENTS)
            farthest = self._add_part(left[part], right[part])
            if farthest is not None:
                place = np.unravel_index(first + farthest, a.shape)
                self._where = tuple(int(i) + s for i, s in zip(place, start, strict=True))

    def _add_part(self, a: Values, b: Values) -> int | None:
        """Count what differs; where the largest distance so far is, if it is among these values."""
        if a.tobytes() == b.tobytes():
            return None
        x, y = _wide(a), _wide(b)
        with np.errstate(invalid="ignore", over="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            distance = np.where(same, 0.0, np.abs(x - y).astype(np.float64))
            # one NaN, or infinities of two signs: as far apart as can be
            distance = np.where(np.isnan(distance), np.inf, distance)
            scale = np.maximum(np.abs(x), np.abs(y)).astype(np.float64)
            apart = ~same & ~(distance <= self._atol + self._rtol * scale)
            relative = distance / np.where(scale == 0, 1.0, scale)  # both are 0 where that is
            relative = np.where(np.isnan(relative), np.inf, relative)  # infinity, or NaN
            relative = np.where(apart, relative, 0)
        if not apart.any():
            return None
        self._differing += int(apart.sum())
        self._max_rel = max(self._max_rel, float(relative.max()))
        at = int(np.argmax(np.where(apart, distance, -1.0)))
        if distance[at] <= self._max_abs:
            return None
        self._pair = (a[at], b[at])
        self._max_abs = float(distance[at])
        return at

    def result(self) -> ValueDifference | None:
        if not self._differing:
            return None
        return ValueDifference(
            a=str(self._pair[0]),
            b=str(self._pair[1]),
            differing=self._differing,
            max_abs=self._max_abs,
            max_rel=self._max_rel,
            where=self._where,
        )


def _wide(values: Values) -> Values:
    """Values in a dtype in which differences are exact enough and NaN is known."""
    if values.dtype.kind == "c":
        return values.astype(np.complex128)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        return values.astype(np.longdouble)
    return values.astype(np.float64)
