"""Sums of several leaves by weights that follow from the angles between them: from their Gram matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from surgery_cli.draft.kernel import (
    Kernel,
    Kit,
    Measurement,
    Piece,
    Place,
    Window,
    broadcast_window,
)
from surgery_cli.draft.kernels.lost_values import rounded_sum
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.specs import LeafSpec

_LEAST_SHARE: Final = 2.0**-1022
"""What a block with anything in it gives to the sum of its squares at least: what vanishes is told from what is 0."""

_LEAST_SQUARES: Final = 2.0**-960
"""Sums of squares below it have lost digits: numbers below 2⁻¹⁰²² have fewer, the smaller they are."""


class Gram(Measurement, frozen=True, tag="gram"):
    """The inner products of all inputs, two by two: [their shape, reduced axes of size 1, inputs, inputs], float64.

    ``over`` are the axes that are reduced; None for all. Complex numbers count as two real ones.
    """

    over: tuple[int, ...] | None = None

    def axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim)) if self.over is None else self.over

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        xp, axes = kit.xp, self.axes(len(at.shape))
        numbers = range(len(blocks))

        def product(one: Any, other: Any) -> Any:
            return xp.sum(xp.real(one * xp.conj(other)), axis=axes, keepdims=True)

        def squares(one: Any) -> Any:
            found = product(one, one)
            is_there = xp.any(one != 0, axis=axes, keepdims=True)
            return xp.where(is_there, xp.maximum(found, _LEAST_SHARE), found)

        def products(*wide: Any) -> Any:
            above = {
                (i, j): squares(wide[i]) if i == j else product(wide[i], wide[j])
                for i in numbers
                for j in numbers[i:]
            }
            rows = ([above[min(i, j), max(i, j)] for j in numbers] for i in numbers)
            return xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)

        return kit.apply(products, *(kit.in_float64(block, lambda x: x) for block in blocks))

    def finish(self, measured: Any, at: Place) -> Any:
        why, fix = "", "look for NaN and infinities with `surgery inspect --stats`"
        own = measured.diagonal(axis1=-2, axis2=-1)
        if not all(map(math.isfinite, measured.reshape(-1).tolist())):
            why = "a sum of squares over one of the members is infinite, or NaN"
        elif ((own > 0) & (own < _LEAST_SQUARES)).any():
            why = "the squares of one of the members are smaller than float64 tells apart"
            fix = "`rescale` the members up first, and the result down again"
        if not why:
            return measured
        raise ValueRefusal(
            f"'{at.path}' has no angles to go by", why=why, fix=fix, path=str(at.path)
        )


class GramSum(Kernel, frozen=True):
    """The inputs by weights that follow from the last one, their ``Gram`` matrix; rounded once.

    ``adds``: the first of them is no member, and the others are added to it. Subclasses say the weights.
    """

    adds: bool = False
    keeps_inputs: ClassVar[bool] = False

    def weights(self, gram: Any, xp: Any, at: Place) -> Any:
        """The weight of each input: [the matrix without its last axis], from [.., inputs, inputs], float64.

        Raises:
            ValueRefusal: there are none.
        """
        raise NotImplementedError

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        last = len(inputs) - 1
        gram = inputs[last].shape
        count = gram[-1]
        places = (*broadcast_window(gram[:-2], out), slice(0, count), slice(0, count))
        yield Piece(last, places, out)
        for number in range(last):
            yield Piece(number, out, out)

    def begin(self, kit: Kit, at: Place) -> Any:
        return None

    def add(self, state: Any, number: int, block: Any, kit: Kit, at: Place) -> Any:
        if number == len(at.inputs) - 1:
            return kit.apply(lambda gram: self.weights(gram, kit.xp, at), block), None
        weights, total = state
        if self.adds and number == 0:
            return weights, kit.add_scaled(None, block, 1.0)
        one = kit.apply(lambda each: each[..., number - self.adds], weights)
        if one.size == 1:
            return weights, kit.add_scaled(total, block, float(one.reshape(())))
        term = kit.in_float64(block, lambda x: x * one)
        return weights, term if total is None else kit.apply(lambda a, b: a + b, total, term)

    def result(self, state: Any, kit: Kit, at: Place) -> Any:
        return rounded_sum(state[1], kit, at)


_NEARLY_ONE: Final = 0.9995


class Slerp(GramSum, frozen=True, tag="slerp"):
    """Two inputs, ``t`` of the way along the arc from the first to the second.

    Where the cosine of their angle is larger in size than ``most``, or one of them is 0, the way is straight. With
    ``adds``, what is added is the way from the first to there.

    Source: Shoemake, Animating rotation with quaternion curves.
    """

    t: float = 0.5
    most: float = _NEARLY_ONE

    def weights(self, gram: Any, xp: Any, at: Place) -> Any:
        cosine = _cosines(gram, xp)[..., 0, 1]
        angle = xp.arccos(cosine)
        sine = xp.sin(angle)
        is_zero = (gram[..., 0, 0] == 0) | (gram[..., 1, 1] == 0)
        is_straight = is_zero | (abs(cosine) > self.most) | (sine < _LEAST_SINE)
        below = xp.where(is_straight, 1.0, sine)
        ends = (1 - self.t, self.t)
        arcs = [xp.where(is_straight, end, xp.sin(end * angle) / below) for end in ends]
        if self.adds:
            arcs[0] = arcs[0] - 1
        return xp.stack(arcs, axis=-1)


class ModelStock(GramSum, frozen=True, tag="model_stock"):
    """The mean of the inputs times what the angle between them says of how far it is to the centre.

    The ratio is N·c / (1 + (N − 1)·c) for the mean cosine c of N fine-tunes' differences from their base; the paper
    derives it for two, and of more the mean over all pairs is taken. Where c is below 0 the formula would go the other
    way, and without bound: there it is 0.

    Source: Jang, Yun and Han, Model Stock: All we need is just a few fine-tuned models.
    """

    def weights(self, gram: Any, xp: Any, at: Place) -> Any:
        count = gram.shape[-1]
        cosines = _cosines(gram, xp)
        pairs = [cosines[..., i, j] for i in range(count) for j in range(i + 1, count)]
        cosine = xp.maximum(sum(pairs) / len(pairs), 0.0)
        return xp.stack([cosine / (1 + (count - 1) * cosine)] * count, axis=-1)


class Karcher(GramSum, frozen=True, tag="karcher"):
    """The mean of the inputs' directions on the sphere, by ``shares``, times the mean of their norms.

    It is the point to which the mean of all arcs is 0, found by going along that mean until there is none. All of it
    stays in the span of the inputs, so that the Gram matrix is enough.

    Source: Karcher, Riemannian center of mass and mollifier smoothing.
    """

    shares: tuple[float, ...] = ()

    _MOST_STEPS: ClassVar[int] = 1000
    _NOISE: ClassVar[float] = 1e-6
    """Steps below it that no longer shrink come of rounding: lengths are roots of sums that cancel out."""

    def weights(self, gram: Any, xp: Any, at: Place) -> Any:
        gram = gram.reshape(gram.shape[-2:])
        norms = xp.sqrt(xp.diagonal(gram))
        total = math.fsum(self.shares)
        shares = xp.asarray([share / total for share in self.shares], dtype="float64")
        is_there = norms > 0
        if not bool(is_there.any()):
            return xp.zeros_like(norms)
        size = (shares * norms).sum()
        taking_part = xp.where(is_there, shares, 0.0)
        mean = self._mean(_cosines(gram, xp), taking_part / taking_part.sum(), xp, at)
        return xp.where(is_there, size * mean / xp.where(is_there, norms, 1.0), 0.0)

    def _mean(self, cosines: Any, shares: Any, xp: Any, at: Place) -> Any:
        """The mean of unit vectors, as a sum of them by weights, from the cosines between them."""

        def length_of(weights: Any) -> float:
            return math.sqrt(max(float(weights @ cosines @ weights), 0.0))

        length = length_of(shares)
        if length < _LEAST_SINE:
            raise _opposite(at)
        mean, before = shares / length, math.inf
        for _ in range(self._MOST_STEPS):
            to_each = xp.clip(cosines @ mean, -1.0, 1.0)
            angles = xp.arccos(to_each)
            sines = xp.sin(angles)
            if bool(((to_each < 0) & (sines < _LEAST_SINE) & (shares > 0)).any()):
                raise _opposite(at)
            is_there = sines < _LEAST_SINE
            arcs = shares * xp.where(is_there, 1.0, angles / xp.where(is_there, 1.0, sines))
            step = arcs - (arcs @ to_each) * mean
            length = length_of(step)
            if length < 1e-9 or before <= length < self._NOISE:
                return mean
            before = length
            moved = math.cos(length) * mean + math.sin(length) / length * step
            mean = moved / length_of(moved)
        raise _opposite(at)


_LEAST_SINE: Final = 1e-6
"""Below it an angle is 0, or half a turn: arc cosines next to 1 are no more exact than 1.5e-8."""


def _cosines(gram: Any, xp: Any) -> Any:
    """The cosines of the angles between all inputs, two by two; 0 where one of them is 0."""
    norms = xp.sqrt(xp.diagonal(gram, axis1=-2, axis2=-1))
    products = norms[..., :, None] * norms[..., None, :]
    is_zero = products == 0
    return xp.clip(xp.where(is_zero, 0.0, gram / xp.where(is_zero, 1.0, products)), -1.0, 1.0)


def _opposite(at: Place) -> ValueRefusal:
    return ValueRefusal(
        f"the members of '{at.path}' have no mean on the sphere",
        why="they point into opposite directions",
        fix="leave one of them out, or use `average`",
        path=str(at.path),
    )


def gram_shape(spec: LeafSpec, over: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """The shape of the Gram matrix of so many leaves like this one.

    >>> from surgery_cli.tree.specs import LeafKind
    >>> gram_shape(LeafSpec(kind=LeafKind.ARRAY, shape=(4, 8), dtype="float32"), (0,), 3)
    (1, 8, 3, 3)
    """
    axes = range(len(spec.shape)) if over is None else over
    reduced = (1 if axis in axes else n for axis, n in enumerate(spec.shape))
    return (*reduced, count, count)
