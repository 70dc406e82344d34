"""Put the places along an axis of leaves into another order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.kernel import Kernel, Piece, Window
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.order_files import order_in
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import listed

_MOST_NAMED = 3


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

    def map(self, leaf: LeafSpec) -> Arrangement:
        (axis,) = resolve_axes(self.axis, len(leaf.shape), "axis")
        index = order_in(self.index) if isinstance(self.index, str) else self.index
        size = leaf.shape[axis]
        named = f"'{self.index}'" if isinstance(self.index, str) else "the index"
        if sorted(index) != list(range(size)):
            raise PlanError(
                f"{named} is no order of {size} places",
                why=_what_is_wrong(index, size),
                fix=f"it must hold each number from 0 to {size - 1} once; `slice` drops places, `pad` adds some",
                field="index",
            )
        return Take(axis, index)


def _what_is_wrong(index: Sequence[int], size: int) -> str:
    there = Counter(index)
    outside = sorted(n for n in there if not 0 <= n < size)
    missing = [n for n in range(size) if n not in there]
    twice = sorted(n for n, count in there.items() if count > 1)
    named = {
        "are beyond them": outside,
        "are missing": missing,
        "stand there more than once": twice,
    }
    said = [
        f"{listed(numbers, _MOST_NAMED, word='and')} {what}"
        for what, numbers in named.items()
        if numbers
    ]
    return f"it holds {len(index)} numbers: {'; '.join(said)}"


class Take(Arrangement, frozen=True, tag="take"):
    """Places along an axis by their numbers."""

    axis: int
    index: tuple[int, ...]

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape = list(leaf.shape)
        shape[self.axis] = len(self.index)
        return rearranged(leaf, shape, range(len(shape)))

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        """One for each chunk of the input in which some of the places are, so that no more than it is read at once."""
        leaf, mine = inputs[0], out[self.axis]
        chunk = (leaf.chunk_shape or leaf.shape)[self.axis] or 1
        wanted = sorted((self.index[place], place) for place in range(mine.start, mine.stop))
        groups = [list(some) for _, some in groupby(wanted, lambda pair: pair[0] // chunk)]
        for some in groups:
            first, last = some[0][0], some[-1][0]
            read = (*out[: self.axis], slice(first, last + 1), *out[self.axis + 1 :])
            write = (*out[: self.axis], [place for _, place in some], *out[self.axis + 1 :])
            yield Piece(0, read, write, [number - first for number, _ in some])
        if not groups:
            yield Piece(0, (*out[: self.axis], slice(0, 0), *out[self.axis + 1 :]), out, [])

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block.take(piece.index, self.axis) if piece.index else block

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.index == tuple(range(inputs[0].shape[self.axis]))

    def after(self, inner: Kernel) -> Kernel | None:
        if not isinstance(inner, Take) or inner.axis != self.axis:
            return None
        return Take(self.axis, tuple(inner.index[n] for n in self.index))

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if axis == self.axis:  # a mean knows no order
            is_order = sorted(self.index) == list(range(leaf.shape[axis]))
            other = 0 if axis else 1
            if not is_order or len(leaf.shape) < 2:
                return None
            place = other - (other > axis)
            return Take(place, tuple(range(leaf.shape[other]))), axis
        return Take(self.axis - (axis < self.axis), self.index), axis
