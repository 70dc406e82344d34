"""The blocks in which leaves are read, computed, digested and written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from surgery_cli.draft.kernel import Window
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.specs import LeafSpec

BLOCK_BYTES = 16 << 20
"""A block has about this many bytes, more only where one stored unit has more. It is fixed, not a setting: digests are
taken over blocks, and so depend on nothing but the leaf."""


def block_shape(
    spec: LeafSpec, write_shape: tuple[int, ...] | None, limit: int = BLOCK_BYTES
) -> tuple[int, ...]:
    """The largest block of whole stored units within ``limit`` bytes, grown from the last axis forwards.

    >>> from surgery_cli.tree.specs import LeafKind
    >>> leaf = LeafSpec(kind=LeafKind.ARRAY, shape=(1000, 8), dtype="float32")
    >>> block_shape(leaf, (10, 8), limit=32 * 100)
    (100, 8)
    """
    shape = spec.shape
    if spec.bytes <= limit:
        return shape
    unit = tuple(
        min(max(w, 1), max(n, 1))
        for w, n in zip(write_shape or (1,) * len(shape), shape, strict=True)
    )
    block = list(unit)
    width = item_bytes(spec.dtype)
    for axis in reversed(range(len(shape))):
        others = math.prod(block[:axis] + block[axis + 1 :]) * width
        fitting = max(limit // max(others * unit[axis], 1), 1) * unit[axis]
        block[axis] = min(fitting, shape[axis])
        if block[axis] < shape[axis]:
            break
    return tuple(block)


def windows(shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[Window]:
    """The grid of blocks that covers ``shape``, in C order; one window for a leaf without axes or elements.

    >>> list(windows((3,), (2,)))
    [(slice(0, 2, None),), (slice(2, 3, None),)]
    >>> list(windows((), ())), list(windows((0,), (0,)))
    ([()], [(slice(0, 0, None),)])
    """
    if not shape or block == shape or 0 in shape:
        yield tuple(slice(0, n) for n in shape)
        return
    for start in range(0, shape[0], max(block[0], 1)):
        head = slice(start, min(start + block[0], shape[0]))
        for rest in windows(shape[1:], block[1:]):
            yield (head, *rest)


def tiles(window: Window, limit: int | None) -> Iterator[Window]:
    """The parts of a window with at most ``limit`` elements each, in C order; all of it where there is no limit."""
    shape = window_shape(window)
    if limit is None or math.prod(shape) <= limit:
        yield window
        return
    tile = list(shape)
    for axis in range(len(shape)):
        rest = math.prod(shape[axis + 1 :])
        tile[axis] = max(min(limit // max(rest, 1), shape[axis]), 1)
        if rest <= limit:
            break
    for part in windows(shape, tuple(tile)):
        yield tuple(
            slice(w.start + p.start, w.start + p.stop) for w, p in zip(window, part, strict=True)
        )


def relative(part: Window, window: Window) -> Window:
    """Where ``part`` stands inside ``window``; both stand at their places in the leaf."""
    return tuple(
        slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, window, strict=True)
    )


def is_inside(part: Window, window: Window) -> bool:
    """True if all of ``part`` is in ``window``."""
    return all(w.start <= p.start and p.stop <= w.stop for p, w in zip(part, window, strict=True))


def inside(places: tuple[Any, ...], window: Window) -> tuple[Any, ...]:
    """As ``relative``, of a piece that may have the numbers of places along an axis in place of a slice."""
    return tuple(
        slice(p.start - w.start, p.stop - w.start)
        if isinstance(p, slice)
        else [n - w.start for n in p]
        for p, w in zip(places, window, strict=True)
    )


def block_bytes(spec: LeafSpec, window: Window) -> int:
    """Bytes of the values in a window of a leaf."""
    return math.prod(window_shape(window)) * item_bytes(spec.dtype)


def start_of(window: Window) -> tuple[int, ...]:
    return tuple([part.start for part in window])


def window_shape(window: Window) -> tuple[int, ...]:
    return tuple([s.stop - s.start for s in window])
