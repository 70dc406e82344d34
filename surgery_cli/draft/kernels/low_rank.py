"""Products of two thin arrays, as low-rank adapters have them, and leaves to which they are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from surgery_cli.draft.kernel import Kernel, Kit, Piece, Place, Window
from surgery_cli.draft.kernels.lost_values import rounded_sum
from surgery_cli.tree.dtypes import FLOATS
from surgery_cli.tree.specs import LeafSpec


class HalfSpacing(Kernel, frozen=True, tag="half_spacing"):
    """How far each value may be from what was rounded to it: half the distance to the next one, float64."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        held = FLOATS[at.inputs[0].dtype]

        def half(x: Any) -> Any:
            _, exponent = kit.xp.frexp(x)
            near = kit.xp.ldexp(kit.xp.ones_like(x), exponent - 1) * held.rounding
            return kit.xp.maximum(near, held.least / 2)

        return kit.in_float64(blocks[0], half)


class AddProduct(Kernel, frozen=True, tag="add_product"):
    """The first input plus ``by`` times the product of the second and the third; times the fourth, if there is one.

    ``axes`` says of the second, the third and the first which of their axes are the same, a letter each, as
    ``ab,bc->ac`` does: over the axis that only the two have, the rank, it is summed. Computed in float64, rounded once.
    """

    axes: str
    by: float

    @property
    def sides(self) -> tuple[str, str, str]:
        """The letters of the second input, of the third, and of the first."""
        factors, _, whole = self.axes.partition("->")
        a, _, b = factors.partition(",")
        return a, b, whole

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        a, b, whole = self.sides
        place = dict(zip(whole, out, strict=True))
        yield Piece(0, out, out)
        for number, letters in enumerate((a, b, ""), 1):
            for spec in inputs[number : number + 1]:
                sizes = zip(letters or spec.shape, spec.shape, strict=True)
                read = (place.get(str(letter), slice(0, size)) for letter, size in sizes)
                yield Piece(number, tuple(read), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        leaf, *factors = blocks
        a, b, *number = (kit.in_float64(block, lambda x: x) for block in factors)

        def added(x: Any) -> Any:
            product = self._product(a, b, kit.xp) * self.by
            return x + (product * number[0].reshape(()) if number else product)

        return rounded_sum(kit.in_float64(leaf, added), kit, at)

    def _product(self, a: Any, b: Any, xp: Any) -> Any:
        """The product, its axes as those of the first input: one matrix product for each place of shared axes."""
        of_a, of_b, whole = self.sides
        shared = [x for x in whole if x in of_a and x in of_b]
        rows = [x for x in whole if x in of_a and x not in of_b]
        columns = [x for x in whole if x not in of_a]
        (rank,) = set(of_a) - set(whole)
        sizes = dict(zip(of_a + of_b, a.shape + b.shape, strict=True))

        def arranged(array: Any, letters: str, wanted: Sequence[str]) -> Any:
            return xp.transpose(array, [letters.index(x) for x in wanted])

        lead = [sizes[x] for x in shared]
        left = arranged(a, of_a, [*shared, *rows, rank]).reshape(*lead, -1, sizes[rank])
        right = arranged(b, of_b, [*shared, rank, *columns]).reshape(*lead, sizes[rank], -1)
        made = "".join([*shared, *rows, *columns])
        product = xp.matmul(left, right).reshape([sizes[x] for x in made])
        return arranged(product, made, whole)
