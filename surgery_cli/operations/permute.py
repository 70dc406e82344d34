"""Put the places along an axis of leaves into another order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Self

from msgspec import Meta
from msgspec.structs import replace

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.take import Take
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.order_files import order_in
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import counted

_MOST_NAMED = 3
_MOST_IN_PLANS = 1 << 16
"""A longer order does not belong into a plan as numbers; it is undone from the source."""


class Permute(Rearranging, tag="permute", kw_only=True, frozen=True):
    """Put the places along an axis of leaves into another order: rows of a vocabulary, columns of neurons.

    Place n of the result is what stood at the n-th number of the file, as in `leaf[index]`; each number must be there
    once.
    """

    index: Annotated[
        str | tuple[int, ...],
        Meta(
            description="The numbers themselves, or a file of them: `.npy`, `.json` (a list), or text with one a line."
        ),
    ]
    axis: Annotated[
        int, Meta(description="The axis whose places are put into order; -1: the last.")
    ] = 0

    example: ClassVar[str] = "- op: permute\n  at: params/Dense_0/kernel\n  index: [3, 1, 0, 2]\n"
    path_fields: ClassVar[tuple[str, ...]] = ("index",)

    def check_values(self) -> None:
        super().check_values()
        if not isinstance(self.index, str):
            self._check_order(len(self.index))

    @property
    def along(self) -> int:
        return self.axis

    def settled(self, read: Callable[[str], bytes]) -> Self:
        if not isinstance(self.index, str):
            return self
        return replace(self, index=order_in(self.index, read))

    def map(self, leaf: LeafSpec) -> Arrangement:
        (axis,) = resolve_axes(self.axis, len(leaf.shape), "axis")
        self._check_order(leaf.shape[axis])
        assert not isinstance(self.index, str)
        return Take(axis, self.index)

    def _check_order(self, size: int) -> None:
        index = self.index
        assert not isinstance(index, str), "the edit is to be settled first"
        if sorted(index) != list(range(size)):
            raise PlanError(
                f"the index is no order of {size} places",
                why=_what_is_wrong(index, size),
                fix=f"it must hold each number from 0 to {size - 1} once; `slice` drops places, `pad` adds some",
                field="index",
            )

    def undoing(self, leaf: LeafSpec) -> Rearranging | None:
        kernel = self.map(leaf)
        if not isinstance(kernel, Take) or len(kernel.index) > _MOST_IN_PLANS:
            return None
        index = tuple(sorted(range(len(kernel.index)), key=kernel.index.__getitem__))
        return Permute(axis=kernel.axis, index=index)


def _what_is_wrong(index: Sequence[int], size: int) -> str:
    there = Counter(index)
    outside = sorted(n for n in there if not 0 <= n < size)
    missing = [n for n in range(size) if n not in there]
    twice = sorted(n for n, count in there.items() if count > 1)
    named = (
        (outside, "is", "are", "beyond them"),
        (missing, "is", "are", "missing"),
        (twice, "stands", "stand", "there more than once"),
    )
    said = [
        f"{listed(numbers, _MOST_NAMED, word='and')} {one if len(numbers) == 1 else many} {what}"
        for numbers, one, many, what in named
        if numbers
    ]
    first = next(numbers for numbers, *_ in named if numbers)
    said[0] = f"the number{'s' if len(first) > 1 else ''} {said[0]}"
    return f"it holds {counted(len(index), 'number')}: {', and '.join(said)}"
