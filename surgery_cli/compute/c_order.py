"""Values whose elements stand in other orders, copied into C order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_ALONG: Final = 16
"""So many places of the last axis are copied at once where neighbours in memory lie along another: what a core reads
for them is still in its cache when it comes to the neighbours. All at once takes three to eight times as long."""

_PIECE_ELEMENTS: Final = 1 << 14
"""Pieces are no smaller than this: each is a call."""


def in_c_order(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values, C-contiguous: themselves if they are.

    >>> in_c_order(np.arange(6).reshape(2, 3).T)
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    if values.flags.c_contiguous:
        return values
    out = np.empty(values.shape, values.dtype)
    _copy(out, values)
    return out


def put(values: np.ndarray[Any, Any], place: tuple[Any, ...], part: np.ndarray[Any, Any]) -> None:
    """``values[place] = part``, where the values are in C order; the place may name numbers along one axis."""
    if all(isinstance(each, slice) for each in place):
        target = values[place]
        _copy(target, np.broadcast_to(part, target.shape))
    else:
        values[place] = part


def _copy(target: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
    if values.size <= _PIECE_ELEMENTS or min(values.strides) == values.strides[-1]:
        target[...] = values
        return
    length = values.shape[-1]
    step = max(_PIECE_ELEMENTS * length // values.size, _ALONG)
    for start in range(0, length, step):
        part = (..., slice(start, start + step))
        target[part] = values[part]
