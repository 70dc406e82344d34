"""In which ways the elements of one shape can become another: axes in another order, cut and put together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec

Shape = tuple[int, ...]

_MOST_AXES: Final = 5


class Arrangement(msgspec.Struct, frozen=True):
    """A leaf in another shape: reshaped to ``before`` (None: not), its axes put in order, reshaped to ``after``."""

    axes: tuple[int, ...] | None = None
    before: Shape | None = None
    after: Shape | None = None

    @property
    def is_identity(self) -> bool:
        return self.axes is None and self.before is None and self.after is None

    @property
    def keeps_axes_whole(self) -> bool:
        """True if no axis is cut or joined with another."""
        return self.before is None and self.after is None

    @property
    def sense(self) -> str:
        """What it does to the order of the axes, whatever their sizes: ``kept``, ``turned``, or the order.

        Turned are those that PyTorch's (out, in) and Flax's (in, out) differ in, heads within one of them or not.
        """
        if self.axes is None:
            return "kept"
        count = len(self.axes)
        is_turned = all(self.axes[n] == (self.axes[0] + n) % count for n in range(count))
        return "turned" if is_turned else str(list(self.axes))

    def of(self, values: Any) -> Any:
        """The values of a leaf, arranged so."""
        if self.before is not None:
            values = values.reshape(self.before)
        if self.axes is not None:
            values = values.transpose(self.axes)
        return values if self.after is None else values.reshape(self.after)

    def edits(self) -> Iterator[dict[str, Any]]:
        """The operations, without where."""
        if self.before is not None:
            yield {"op": "reshape", "shape": list(self.before)}
        if self.axes is not None:
            yield {"op": "transpose", "axes": list(self.axes)}
        if self.after is not None:
            yield {"op": "reshape", "shape": list(self.after)}

    @property
    def text(self) -> str:
        """What it does, in words; '' for nothing."""
        return ", ".join(
            f"{edit['op']} {edit.get('axes', edit.get('shape'))}" for edit in self.edits()
        )


def arrangements(old: Shape, new: Shape) -> list[Arrangement]:
    """Every arrangement that gives the shape: axes kept in order first, then swapped, then cut or joined.

    >>> [one.text for one in arrangements((4, 4), (4, 4))]
    ['', 'transpose [1, 0]']
    >>> [one.text for one in arrangements((8, 6), (6, 4, 2))]
    ['reshape [4, 2, 6], transpose [2, 0, 1]', 'reshape [2, 4, 6], transpose [2, 1, 0]']
    """
    if math.prod(old) != math.prod(new):
        return []
    found = [Arrangement(axes=axes) for axes in _orders(old) if _ordered(old, axes) == new]
    if old == new:
        found.insert(0, Arrangement())
    if found or max(len(old), len(new)) > _MOST_AXES:
        return found
    if _is_aligned(old, new):
        found.append(Arrangement(after=new))
    if len(new) <= len(old):
        found += [
            Arrangement(axes=axes, after=new)
            for axes in _orders(old)
            if _is_aligned(_ordered(old, axes), new)
        ]
    if len(new) >= len(old):
        befores = {a: tuple(new[a.index(n)] for n in range(len(new))) for a in _orders(new)}
        found += [
            Arrangement(before=before, axes=axes)
            for axes, before in befores.items()
            if _is_aligned(old, before)
        ]
    return found


def in_turns(one: Arrangement, old: Shape, new: Shape) -> Iterator[Arrangement]:
    """The arrangement, with the halves of an axis, or of each head of it, taking turns, or taking them no more.

    Rotary embeddings turn the two halves of a head in some models, and neighbours in others.

    >>> [way.text for way in in_turns(Arrangement(), (4,), (4,))]
    ['reshape [2, 2], transpose [1, 0], reshape [4]']
    """
    cut = one.before or old
    order = one.axes or tuple(range(len(cut)))
    for axis, size in enumerate(cut):
        for heads in (n for n in range(1, size // 4 + 1) if size % (2 * n) == 0):
            half = size // heads // 2
            for halves in dict.fromkeys(((2, half), (half, 2))):
                parts = (heads, *halves)
                before = (*cut[:axis], *parts, *cut[axis + 1 :])
                axes = [
                    place
                    for n in order
                    for place in ((n, n + 2, n + 1) if n == axis else (n + 2 * (n > axis),))
                ]
                if heads == 1:
                    before = (*cut[:axis], *halves, *cut[axis + 1 :])
                    axes = [n - (n > axis) for n in axes if n != axis]
                yield Arrangement(before=before, axes=tuple(axes), after=new)


def _orders(shape: Shape) -> Iterator[tuple[int, ...]]:
    """Every other order of the axes that moves an element; axes of length 1 hold none apart."""
    if len(shape) > _MOST_AXES:
        return
    wide = [axis for axis, size in enumerate(shape) if size != 1]
    seen = set()
    for axes in itertools.permutations(range(len(shape))):
        order = tuple(axis for axis in axes if axis in wide)
        if order not in seen and order != tuple(wide):
            yield axes
        seen.add(order)


def _ordered(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(shape[axis] for axis in axes)


def _is_aligned(old: Shape, new: Shape) -> bool:
    """True if a reshape cuts single axes, or joins neighbours, and never both at one place.

    >>> _is_aligned((12, 5), (3, 4, 5)), _is_aligned((4, 6), (6, 4)), _is_aligned((1, 1, 5), (5,))
    (True, False, True)
    """
    left, right = [n for n in old if n != 1], [n for n in new if n != 1]
    i = j = 0
    while i < len(left) and j < len(right):
        start = (i, j)
        one, other = left[i], right[j]
        i, j = i + 1, j + 1
        while one != other:
            if one < other and i < len(left):
                one, i = one * left[i], i + 1
            elif other < one and j < len(right):
                other, j = other * right[j], j + 1
            else:
                return False
        if i - start[0] > 1 and j - start[1] > 1:
            return False
    return i == len(left) and j == len(right)
