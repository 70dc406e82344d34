"""The same elements, in the same order, under other axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Kernel, Piece, Window
from surgery_cli.tree.specs import LeafSpec


class Reshape(Arrangement, frozen=True, tag="reshape"):
    """A leaf in another shape, its elements in C order."""

    shape: tuple[int, ...]

    def output(self, leaf: LeafSpec) -> LeafSpec:
        groups = _groups(leaf.shape, self.shape)
        origins: list[int | None] = [None] * len(self.shape)
        for old, new in groups:
            if len(old) == len(new) == 1:
                origins[new[0]] = old[0]
        spec = rearranged(leaf, self.shape, origins)
        return msgspec.structs.replace(
            spec,
            chunk_shape=_grid(leaf.chunk_shape, spec.chunk_shape, leaf.shape, self.shape, groups),
            write_shape=_grid(leaf.write_shape, spec.write_shape, leaf.shape, self.shape, groups),
        )

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        old = inputs[0].shape
        whole = tuple(slice(0, n) for n in old)
        if 0 in self.shape:
            yield Piece(0, whole, out, ())
            return
        groups = _groups(old, self.shape)
        runs = [
            list(_runs([self.shape[n] for n in new], [out[n] for n in new])) for _, new in groups
        ]
        for chosen in itertools.product(*runs):
            read, write, cuts = list(whole), list(out), []
            for (before, after), run in zip(groups, chosen, strict=True):
                box, base = _box([old[n] for n in before], run.start, run.stop)
                for axis, part in zip(before, box, strict=True):
                    read[axis] = part
                for axis, part in zip(after, run.window, strict=True):
                    write[axis] = part
                cuts.append(slice(run.start - base, run.stop - base))
            yield Piece(0, tuple(read), tuple(write), (groups, tuple(cuts)))

    def arrange(self, block: Any, piece: Piece) -> Any:
        if not piece.index:
            return block.reshape([part.stop - part.start for part in piece.write])
        groups, cuts = piece.index
        flat = block.reshape([math.prod(block.shape[n] for n in old) for old, _ in groups])
        return flat[cuts].reshape([part.stop - part.start for part in piece.write])

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        return order.regrouped(self.shape)

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return inputs[0].shape == self.shape

    def after(self, inner: Kernel) -> Kernel | None:
        return self if isinstance(inner, Reshape) else None

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        for old, new in _groups(leaf.shape, self.shape):
            if old == (axis,) and len(new) == 1:
                return Reshape((*self.shape[: new[0]], *self.shape[new[0] + 1 :])), new[0]
        return None


_Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Axes that follow each other, and those that hold the same elements in the new shape; none of them of size 1."""


def _groups(old: Sequence[int], new: Sequence[int]) -> list[_Group]:
    """The finest groups.

    >>> _groups((4, 1, 6, 5), (4, 2, 15))
    [((0,), (0,)), ((2, 3), (1, 2))]
    """
    left = [n for n, size in enumerate(old) if size != 1]
    right = [n for n, size in enumerate(new) if size != 1]
    if 0 in old or 0 in new:
        return [(tuple(left), tuple(right))]
    found: list[_Group] = []
    while left or right:
        olds, news = [left.pop(0)], [right.pop(0)]
        while (a := math.prod(old[n] for n in olds)) != (b := math.prod(new[n] for n in news)):
            if a < b:
                olds.append(left.pop(0))
            else:
                news.append(right.pop(0))
        found.append((tuple(olds), tuple(news)))
    return found


class _Run(NamedTuple):
    """Elements that follow each other in C order: their numbers, and where they stand."""

    start: int
    stop: int
    window: tuple[slice, ...]


def _runs(sizes: Sequence[int], window: Sequence[slice]) -> Iterator[_Run]:
    """The longest runs of which a window is made."""
    last = len(sizes) - 1
    while last > 0 and window[last] == slice(0, sizes[last]):
        last -= 1
    inner = math.prod(sizes[last + 1 :])
    for index in itertools.product(*(range(part.start, part.stop) for part in window[:last])):
        number = 0
        for n, size in zip(index, sizes, strict=False):
            number = number * size + n
        first = number * sizes[last]
        start, stop = (first + window[last].start) * inner, (first + window[last].stop) * inner
        yield _Run(start, stop, (*(slice(n, n + 1) for n in index), *window[last:]))


def _box(sizes: Sequence[int], start: int, stop: int) -> tuple[list[slice], int]:
    """The smallest window of whole rows that holds a run of elements, and the number of its first element."""
    inner = math.prod(sizes[1:])
    first, last = start // inner, -(-stop // inner)
    if last - first > 1 or len(sizes) == 1:
        return [slice(first, last), *(slice(0, n) for n in sizes[1:])], first * inner
    rest, base = _box(sizes[1:], start - first * inner, stop - first * inner)
    return [slice(first, last), *rest], first * inner + base


def _grid(
    chunks: tuple[int, ...] | None,
    image: tuple[int, ...] | None,
    old: Sequence[int],
    new: Sequence[int],
    groups: Sequence[_Group],
) -> tuple[int, ...] | None:
    """``image``, with the chunks of axes that are split or merged: as many elements, that follow each other."""
    if chunks is None or image is None or 0 in new:
        return image
    grid = list(image)
    for before, after in groups:
        if len(before) == len(after) == 1:
            continue
        count = math.prod(min(chunks[n], old[n]) for n in before)
        for axis in reversed(after):
            grid[axis] = max(min(count, new[axis]), 1)
            count = count // new[axis] if count >= new[axis] else 0
    return tuple(grid)
