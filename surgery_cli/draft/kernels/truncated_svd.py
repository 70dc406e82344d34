"""The best approximation of a difference by a product of two thin arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from surgery_cli.draft.kernel import Kernel, Kit, Measurement, Piece, Place, Window
from surgery_cli.draft.kernels.lost_values import rounded_sum
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Axes(NamedTuple):
    """The axes of a product by their letters, as in ``ab,bc->ac``, and the shape of all of it."""

    a: str
    b: str
    whole: str
    sizes: dict[str, int]

    @classmethod
    def of(cls, text: str, shape: Sequence[int]) -> Axes:
        factors, _, whole = text.partition("->")
        a, _, b = factors.partition(",")
        return cls(a, b, whole, dict(zip(whole, shape, strict=True)))

    @property
    def shared(self) -> str:
        """Those of which each place has a product of its own: the layers of a stack."""
        return "".join(x for x in self.whole if x in self.a and x in self.b)

    @property
    def rows(self) -> str:
        return "".join(x for x in self.whole if x in self.a and x not in self.b)

    @property
    def columns(self) -> str:
        return "".join(x for x in self.whole if x not in self.a)

    def count(self, letters: str) -> int:
        """How many places these axes have."""
        return math.prod(self.sizes[x] for x in letters)

    def matrices(self, array: Any, xp: Any) -> Any:
        """The whole as matrices: [places of shared axes, rows, columns]."""
        order = [self.whole.index(x) for x in self.shared + self.rows + self.columns]
        shape = [self.count(side) for side in (self.shared, self.rows, self.columns)]
        return xp.transpose(array, order).reshape(shape)


class _OfDifference(Measurement, frozen=True):
    """What is measured of the first input minus the second, as matrices by ``axes``."""

    axes_text: str
    keeps_places: ClassVar[bool] = False

    @property
    def is_whole(self) -> bool:
        return True

    def temporary_bytes(self, leaf: LeafSpec) -> int | None:
        axes = Axes.of(self.axes_text, leaf.shape)
        short = min(axes.count(axes.rows), axes.count(axes.columns))
        long = max(axes.count(axes.rows), axes.count(axes.columns))
        other = leaf.size * item_bytes(leaf.dtype)
        return other + 8 * (4 * leaf.size + 5 * short * short + 2 * short * long)

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        axes = Axes.of(self.axes_text, at.shape)

        def found(leaf: Any) -> Any:
            difference = leaf - kit.in_float64(blocks[1], lambda x: x)
            if not bool(kit.xp.isfinite(difference).all()):
                raise ValueRefusal(
                    f"'{at.path}' cannot be approximated",
                    why="it or what it is held against has NaN or infinities, or they are too far apart",
                    fix=worded(
                        "look for them with `surgery inspect --stats`, or leave it out with {except}"
                    ),
                    path=str(at.path),
                )
            every = axes.matrices(difference, kit.xp)
            return kit.xp.stack([self.of_matrix(every[n], kit.xp) for n in range(every.shape[0])])

        return kit.in_float64(blocks[0], found)

    def of_matrix(self, matrix: Any, xp: Any) -> Any:
        """What is measured of one matrix."""
        raise NotImplementedError


def _leading(matrix: Any, xp: Any) -> tuple[Any, Any, float]:
    """Squares of the singular values, the largest first, with vectors of the shorter side; the unit of the values."""
    largest = float(abs(matrix).max()) if matrix.size else 0.0
    unit = (
        math.ldexp(1.0, math.frexp(largest)[1]) if largest else 1.0
    )  # squares stay within float64
    scaled = matrix / unit
    is_tall = matrix.shape[0] >= matrix.shape[1]
    squares, vectors = xp.linalg.eigh(scaled.T @ scaled if is_tall else scaled @ scaled.T)
    return squares[::-1], vectors[:, ::-1], unit


class TruncatedSvd(_OfDifference, frozen=True, tag="truncated_svd"):
    """The factors of the best approximation of rank ``rank``, divided by ``by``: [shared, rows + columns, rank].

    The vectors of the shorter side are those of the Gram matrix; the others follow by projection, so that the product
    is one, and its error that of the exact decomposition up to 1e-8 of the norm. ``split`` says which factor has the
    singular values: ``a``, ``b``, or each their roots (``even``). In each column of the first the largest is above 0.

    Source: Eckart and Young, The approximation of one matrix by another of lower rank.
    """

    rank: int
    split: str = "even"
    by: float = 1.0

    def of_matrix(self, matrix: Any, xp: Any) -> Any:
        is_tall = matrix.shape[0] >= matrix.shape[1]
        near = _leading(matrix, xp)[1][:, : self.rank]
        far = (matrix if is_tall else matrix.T) @ near
        values = xp.sqrt(xp.sum(far * far, axis=0))
        far = far / xp.where(values > 0, values, 1.0)
        left, right = (far, near) if is_tall else (near, far)
        peaks = xp.take_along_axis(left, abs(left).argmax(axis=0)[None], axis=0)[0]
        signs = xp.where(peaks < 0, -1.0, 1.0)
        values = values / self.by
        share = {"a": 1.0, "b": 0.0, "even": 0.5}[self.split]
        left, right = left * signs * values**share, right * signs * values ** (1 - share)
        return xp.concatenate([left, right])


class SingularValues(_OfDifference, frozen=True, tag="singular_values"):
    """The squares of the singular values, the largest first: [shared, the shorter side]."""

    def of_matrix(self, matrix: Any, xp: Any) -> Any:
        squares, _, unit = _leading(matrix, xp)
        return xp.maximum(squares, 0.0) * (unit * unit)


class SvdFactor(Kernel, frozen=True, tag="svd_factor"):
    """One of the factors (``a`` or ``b``) of a ``TruncatedSvd`` of a leaf of this shape; rounded once."""

    axes: str
    shape: tuple[int, ...]
    side: str
    keeps_places: ClassVar[bool] = False

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, tuple(slice(0, n) for n in inputs[0].shape), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        axes = Axes.of(self.axes, self.shape)
        rows = axes.count(axes.rows)
        letters, inner = (axes.a, axes.rows) if self.side == "a" else (axes.b, axes.columns)
        (rank,) = {*letters} - {*axes.whole}
        made = axes.shared + inner + rank
        block = tuple(slice(s, s + n) for s, n in zip(at.start, at.shape, strict=True))

        def factor(packed: Any) -> Any:
            part = packed[:, :rows] if self.side == "a" else packed[:, rows:]
            sizes = {**axes.sizes, rank: packed.shape[-1]}
            part = part.reshape([sizes[x] for x in made])
            part = kit.xp.transpose(part, [made.index(x) for x in letters])
            return part.reshape(at.output.shape)[block]

        return rounded_sum(kit.in_float64(blocks[0], factor), kit, at)
