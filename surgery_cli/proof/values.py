"""How the values of a leaf differ between two checkpoints, streamed; NaN equals NaN."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np

from surgery_cli.engine.bounded_reads import PairReading
from surgery_cli.engine.grid import windows
from surgery_cli.engine.reading import Readable, Values
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec

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


class Side(Readable, Protocol):
    """A checkpoint that is compared with another."""

    @property
    def tree(self) -> TreeSpec: ...


def value_difference(
    path: LeafPath, a: Side, b: Side, reading: PairReading, *, rtol: float, atol: float
) -> ValueDifference | None:
    """Compare a leaf whose specs agree; None if no element is apart by more than ``atol + rtol * magnitude``."""
    spec = a.tree[path]
    if not spec.has_array:
        if spec.kind is not LeafKind.STRING or (left := a.read(path)) == (right := b.read(path)):
            return None
        return ValueDifference(a=repr(left), b=repr(right))
    tally = _Tally(rtol, atol)
    for window in windows(spec.shape, reading.a.part):
        start = tuple(s.start for s in window)
        left = reading.a.read(a, path, spec, window)
        tally.add(left, reading.b.read(b, path, b.tree[path], window), start)
        del left  # or it would stay while the next is read
    return tally.result()


class _Tally:
    """Counts elements that differ and keeps the largest difference, block by block.

    Of several that are as large it is the first in C order of the leaf, in whatever order blocks come.
    """

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
            found = self._add_part(left[part], right[part])
            if found is None:
                continue
            distance, at = found
            place = np.unravel_index(first + at, a.shape)
            where = tuple(int(i) + s for i, s in zip(place, start, strict=True))
            if (-distance, where) < (-self._max_abs, self._where):
                self._max_abs, self._where = distance, where
                self._pair = (left[first + at], right[first + at])

    def _add_part(self, a: Values, b: Values) -> tuple[float, int] | None:
        """Count what differs; the largest distance among these values, and where the first that is as large stands."""
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
        return float(distance[at]), at

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
    with np.errstate(invalid="ignore"):  # signaling NaN, which damaged data holds
        return values.astype(np.float64)
