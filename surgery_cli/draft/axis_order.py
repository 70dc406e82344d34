"""In which order the elements stand that an axis had, whatever axes they are counted by since."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Self, TypeAlias

_Part: TypeAlias = tuple[tuple[int, ...], int]
"""A part of an axis, by its number and those of the parts that it is of, outer before inner; and its size."""


class AxisOrder(NamedTuple):
    """The axes of a leaf, each with the parts that it has of the axes that were there first, outer before inner.

    >>> heads = AxisOrder.of((4, 6)).regrouped((4, 2, 3))
    >>> heads.transposed((1, 2, 0)).is_permuted, heads.transposed((0, 2, 1)).is_permuted
    (False, True)
    """

    axes: tuple[tuple[_Part, ...], ...]
    is_shuffled: bool = False
    """True if places along an axis were put into another order one by one."""

    @classmethod
    def of(cls, shape: Sequence[int]) -> Self:
        """Each axis as it is."""
        return cls(tuple((((n,), size),) for n, size in enumerate(shape)))

    @property
    def is_permuted(self) -> bool:
        """True if elements of one axis stand in another order than they did.

        Axes that change their places, are split, or are joined to others keep theirs.
        """
        order: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for name, size in (part for axis in self.axes for part in axis):
            if size > 1:
                order[name[0]].append(name)
        return self.is_shuffled or any(names != sorted(names) for names in order.values())

    def transposed(self, axes: Sequence[int]) -> Self:
        """The same axes in another order."""
        return self._replace(axes=tuple(self.axes[n] for n in axes))

    def regrouped(self, shape: Sequence[int]) -> Self | None:
        """The axes of another shape, by the parts that follow each other in it; None if one is cut across."""
        axes: list[tuple[_Part, ...]] = []
        rest = [part for axis in self.axes for part in axis if part[1] != 1]
        for size in shape:
            parts, left = list[_Part](), size
            while left > 1 and rest:
                name, count = rest.pop(0)
                if count > left and count % left == 0:
                    rest.insert(0, ((*name, 1), count // left))
                    name, count = (*name, 0), left
                if not count or left % count:
                    return None
                parts.append((name, count))
                left //= count
            axes.append(tuple(parts))
        return self._replace(axes=tuple(axes))

    def shuffled(self) -> Self:
        """With the places of an axis in another order."""
        return self._replace(is_shuffled=True)

    def with_new(self, axis: int, size: int) -> Self:
        """With an axis that is none of theirs."""
        number = 1 + max((name[0] for parts in self.axes for name, _ in parts), default=-1)
        return self._replace(axes=(*self.axes[:axis], (((number,), size),), *self.axes[axis:]))

    def without(self, axis: int) -> Self:
        """Of one place along an axis, which is gone."""
        return self._replace(axes=(*self.axes[:axis], *self.axes[axis + 1 :]))

    def resized(self, axis: int, size: int) -> Self | None:
        """With further or fewer places along an axis, in their order; None if it is made of several parts."""
        parts = self.axes[axis]
        if math.prod(n for _, n in parts) == size:
            return self
        if len(parts) != 1:
            return None
        one = ((parts[0][0], size),)
        return self._replace(axes=(*self.axes[:axis], one, *self.axes[axis + 1 :]))
