"""Stored leaves as arrays, block by block: for everything that looks at values without editing them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.grid import relative, window_shape
from surgery_cli.tree.dtypes import Rounding, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

Values = np.ndarray[Any, Any]


class Readable(Protocol):
    """A source whose leaves can be read."""

    def read(self, path: LeafPath, window: Window | None = None) -> Any: ...


@runtime_checkable
class RoundsAsItDecodes(Protocol):
    """A source of which some leaves can be had in another dtype, without the values as they are stored in memory."""

    def read_rounded(self, path: LeafPath, window: Window, rounding: Rounding) -> Any:
        """A block of a leaf, each element rounded by what decodes it; None where that cannot be."""


@runtime_checkable
class TellsShapes(Protocol):
    """A source that knows its leaves without reading them."""

    @property
    def tree(self) -> TreeSpec: ...


class CountedSource:
    """A source that counts the bytes of values that were asked of it. May be used from threads."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._lock = threading.Lock()
        self.read_bytes = 0

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        value = self._source.read(path, window)
        self._count(getattr(value, "nbytes", 0))
        return value

    def read_rounded(self, path: LeafPath, window: Window, rounding: Rounding) -> Any:
        """See ``RoundsAsItDecodes``; what is stored counts."""
        if not isinstance(self._source, RoundsAsItDecodes):
            return None
        value = self._source.read_rounded(path, window, rounding)
        if value is not None:
            self._count(value.size * item_bytes(rounding.stored))
        return value

    def has_shape(self, path: LeafPath, shape: tuple[int, ...]) -> bool:
        """True if it has a leaf of this shape, as far as it tells that of its leaves."""
        if not isinstance(self._source, TellsShapes):
            return True
        stored = self._source.tree.get(path)
        return stored is not None and stored.shape == shape

    def _count(self, read_bytes: int) -> None:
        with self._lock:
            self.read_bytes += read_bytes


def read_values(source: Readable, path: LeafPath, window: Window | None = None) -> Values:
    """A stored leaf, or a block of it, as an array; formats that hold Python numbers give arrays without axes."""
    return np.asarray(source.read(path, window))


def read_scalar(source: Readable, path: LeafPath) -> int | float | bool | str | None:
    """The value of a leaf with one element, or of a string, as a Python value."""
    value = source.read(path)
    if value is None or isinstance(value, str):
        return value
    array = np.asarray(value).reshape(-1)
    one: int | float | bool = (array.astype(np.float64) if array.dtype.kind == "V" else array)[
        0
    ].item()
    return one


def put_together(window: Window, parts: Iterable[tuple[Window, Values]]) -> Values:
    """A block of its parts, which are made as they are asked for."""
    out: Values | None = None
    for part, values in parts:
        if out is None:
            out = np.empty(window_shape(window), values.dtype)
        out[relative(part, window)] = values
    assert out is not None
    return out
