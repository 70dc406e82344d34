"""The host kit: NumPy on this machine. No accelerator runtime is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from surgery_cli.compute import random
from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.draft.kernel import Place
from surgery_cli.tree.dtypes import Rounding, is_complex, is_floating, item_bytes
from surgery_cli.tree.specs import LeafSpec


class HostKit:
    """Arithmetic on NumPy arrays, in memory as they are.

    NumPy's own warnings are off inside: overflow and NaN are looked for in the results, by the operations
    and by the engine's guard, and a warning on the terminal would not say in which leaf.
    """

    xp: Final = np
    tile_elements: Final = 1 << 17
    """Half a megabyte of float32, which a core's second-level cache holds beside its temporaries."""

    def put(self, block: Any, spec: LeafSpec) -> Any:
        return block

    def fetch(self, array: Any) -> Any:
        return np.asarray(array)

    def in_float32(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        with np.errstate(all="ignore"):
            return self.cast(function(self.widened(leaf)), leaf.dtype.name)

    def in_float64(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        with np.errstate(all="ignore"):
            return function(leaf.astype(widest(leaf.dtype.name)))

    def apply(self, function: Callable[..., Any], *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays)

    def widened(self, leaf: Any) -> Any:
        with np.errstate(invalid="ignore"):  # signaling NaN, which damaged data hold
            return leaf.astype(np.float32) if is_narrow(leaf.dtype.name) else leaf

    def cast(self, leaf: Any, dtype: str) -> Any:
        with np.errstate(all="ignore"):
            if leaf.dtype.name != "float64" or leaf.size <= self.tile_elements:
                return rounded(np, leaf, dtype)
            out = np.empty(leaf.shape, numpy_dtype(dtype))
            for part in _tiles(leaf.size):  # rounding has temporaries
                out.reshape(-1)[part] = rounded(np, leaf.reshape(-1)[part], dtype)
            return out

    def rounds_alike(self, rounding: Rounding) -> bool:
        return rounding == ("float32", "bfloat16")  # all 2**32 of them were compared

    def add_scaled(self, total: Any, block: Any, factor: float) -> Any:
        wide = widest(block.dtype.name)
        if total is None:
            total = np.empty(block.shape, wide)
            with np.errstate(invalid="ignore"):
                total.reshape(-1)[...] = block.reshape(-1)  # converted in NumPy's own small buffers
            if factor != 1:
                self.apply(np.multiply, total, factor, total)
            return total
        with np.errstate(all="ignore"):
            for part in _tiles(block.size):
                sums, terms = total.reshape(-1)[part], block.reshape(-1)[part].astype(wide)
                np.add(sums, terms if factor == 1 else terms * factor, out=sums)
        return total

    def quotient(self, total: Any, divisor: float, dtype: str) -> Any:
        out = np.empty(total.shape, numpy_dtype(dtype))
        with np.errstate(all="ignore"):
            for part in _tiles(total.size):
                sums = total.reshape(-1)[part]
                np.divide(sums, divisor, out=sums)
                out.reshape(-1)[part] = rounded(np, sums, dtype)
        return out

    def draw(self, distribution: str, seed: int, at: Place, **bounds: float) -> Any:
        return random.draw(distribution, seed, at, **bounds)

    def orthogonal(self, seed: int, at: Place, column_axis: int, *, is_delta: bool) -> Any:
        return random.orthogonal(seed, at, column_axis, is_delta=is_delta)


def _tiles(size: int) -> Iterator[slice]:
    for start in range(0, size, HostKit.tile_elements):
        yield slice(start, start + HostKit.tile_elements)


def is_narrow(dtype: str) -> bool:
    """True for floats of less than 32 bits, which are computed in float32."""
    return is_floating(dtype) and item_bytes(dtype) < 4


def widest(dtype: str) -> np.dtype[Any]:
    """The dtype in which a leaf is measured."""
    return np.dtype(np.complex128 if is_complex(dtype) else np.float64)


def rounded(xp: Any, array: Any, dtype: str) -> Any:
    """``array`` in ``dtype``, rounded to nearest even once.

    A conversion of float64 to a narrow float goes through float32 in ml_dtypes and XLA, and would round twice. Rounding
    to odd in between makes it right: an inexact float32 keeps its last bit set, so that no false tie arises.

    Source: Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd.
    """
    target = numpy_dtype(dtype)
    if array.dtype.name == "float64" and is_narrow(dtype):
        near = array.astype(np.float32)
        bits = near.view(np.int32)
        toward_zero = bits - (xp.abs(near) > xp.abs(array)).astype(np.int32)
        odd = xp.where((near == array) | xp.isnan(array), bits, toward_zero | 1)
        array = odd.astype(np.int32).view(np.float32)
    return array if array.dtype == target else array.astype(target)
