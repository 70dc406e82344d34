"""A second moment in factors, as Adafactor keeps it: rebuilt from its means over rows and columns, and taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from surgery_cli.draft.kernel import Kernel, Kit, Piece, Place, Window
from surgery_cli.tree.specs import LeafSpec


class Product(Kernel, frozen=True, tag="product_of_factors"):
    """A second moment from its means over two axes and the mean of the first of these over the other axis.

    Inputs: the means along ``first``, [the shape without it], those along ``second``, and of the former those along
    ``second`` as well, [that axis of size 1].

    Source: optax.scale_by_factored_rms, whose ``d0`` and ``d1`` the axes are.
    """

    first: int
    second: int
    keeps_places: ClassVar[bool] = False

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        rows = _without(out, self.first)
        yield Piece(0, rows, out)
        yield Piece(1, _without(out, self.second), out)
        left = self.second - (self.second > self.first)
        yield Piece(2, (*rows[:left], slice(0, 1), *rows[left + 1 :]), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        rows, columns, mean = (kit.widened(block) for block in blocks)

        def product(r: Any, c: Any, m: Any) -> Any:
            share = kit.xp.where(m == 0, 0.0, r / kit.xp.where(m == 0, 1.0, m))
            return kit.xp.expand_dims(share, self.first) * kit.xp.expand_dims(c, self.second)

        return kit.cast(kit.apply(product, rows, columns, mean), at.output.dtype)


def _without(window: Window, axis: int) -> Window:
    return (*window[:axis], *window[axis + 1 :])
