"""Scale leaves to a given norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Scales
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Measurement, Place
from surgery_cli.draft.kernels.root_of_squares import root_of_squares
from surgery_cli.draft.kernels.scale import Multiply
from surgery_cli.draft.settings import check_axes, check_finite, resolve_axes
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.numeric import Numeric
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded


class Normalize(Numeric, tag="normalize", kw_only=True, frozen=True):
    """Scale leaves so that their norm, over all axes or over given ones, is 1 or another number.

    A norm that would turn values into zeros, or infinities, of their dtype is refused; subnormal values, that devices
    take for 0, may become 0.
    """

    norm: Annotated[
        Literal["l1", "l2", "max", "rms", "spectral"],
        Meta(
            description="`l1`, `l2`, `max` (of absolute values), `rms`, or `spectral`: the largest singular value of"
            " the matrix whose columns are the last axis (or of the one over the two given axes)."
        ),
    ] = "l2"
    to: Annotated[float, Meta(description="The norm to reach, above 0, dimensionless.")] = 1.0
    axis: Annotated[
        int | tuple[int, ...] | None,
        Meta(description="Axis, or axes, to take the norm over; all of them if left out."),
    ] = None
    on_zero: Annotated[
        Literal["error", "keep"],
        Meta(description="What to do where the norm is 0: refuse, or keep these values."),
    ] = "error"

    example: ClassVar[str] = "- op: normalize\n  at: params/Dense_0/kernel\n  norm: l2\n"

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.size == 0 and self.on_zero == "keep"

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")
        check_finite(self.to, "to")
        if self.to <= 0:
            raise PlanError(
                worded("{to: {:g}} is no norm", self.to),
                why="a norm to reach is above 0",
                fix=worded("write a number above 0, such as {to: 1.0}"),
                field="to",
            )

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        count = len(self.measured_axes(len(spec.shape)))
        if self.norm == "spectral" and (count < 2 or (self.axis is not None and count > 2)):
            raise PlanError(
                f"{spec.type_text} is no matrix over {count} axes",
                why="a spectral norm needs two axes, or a leaf of two axes or more",
                fix=worded(
                    "use {norm: l2}, which is the same for a vector, or name two axes in {axis}"
                ),
                field="norm",
            )
        if spec.size == 0:
            raise PlanError(
                f"{spec.type_text} has no norm",
                why="it has no elements",
                fix=worded("leave it out with {except}, or say {on_zero: keep}"),
            )
        return spec

    def measured_axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim)) if self.axis is None else resolve_axes(self.axis, ndim, "axis")

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Normalized()

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        """The factor, which is measured of the leaf."""
        axes = None if self.axis is None else self.measured_axes(len(recipe.spec.shape))
        factor = NormFactor(self.norm, self.to, axes, keeps_zeros=self.on_zero == "keep")
        return (factor_of(factor, recipe, path),)

    @property
    def effect(self) -> Effect:
        return Scales()

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        return Scales(recipe.inputs[1], is_positive=True) if isinstance(recipe, Made) else Scales()


class Normalized(Multiply, frozen=True, tag="normalized"):
    """A leaf times the factor that gives it a norm."""

    way_out: ClassVar[str] = "reach a larger norm, or cast the leaf to a wider dtype first"


class NormFactor(Measurement, frozen=True, tag="normalize"):
    """The factor that gives a leaf the norm ``to``: one number, or [the leaf's shape, ``axis`` of size 1]."""

    norm: str
    to: float
    axis: tuple[int, ...] | None = None
    keeps_zeros: bool = False

    @property
    def is_whole(self) -> bool:
        return self.norm == "spectral"

    @property
    def combine(self) -> str:
        return {"l1": "add", "l2": "hypot", "rms": "hypot"}.get(self.norm, "maximum")

    def axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim)) if self.axis is None else self.axis

    def temporary_bytes(self, leaf: LeafSpec) -> int | None:
        """Of `spectral`: the leaf in float64 (or complex128) three times, and twice the smaller Gram matrix."""
        width = 16 if is_complex(leaf.dtype) else 8
        if not leaf.size:
            return 0
        axes = self.axes(len(leaf.shape))
        columns = leaf.shape[-1 if self.axis is None else axes[-1]]
        rows = leaf.size // columns if self.axis is None else leaf.shape[axes[0]]
        grams = leaf.size // (rows * columns) * min(rows, columns) ** 2
        return width * (3 * leaf.size + 2 * grams)

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,), leaf = blocks, at.inputs[0]
        axes = self.axes(len(leaf.shape))
        if self.norm == "spectral":
            pair = axes if self.axis is not None else None
            return kit.in_float64(block, lambda x: _spectral_norm(kit.xp, x, pair))
        count = math.prod(leaf.shape[axis] for axis in axes) if self.norm == "rms" else 1
        is_wide = leaf.dtype in ("float64", "complex128")
        return kit.in_float64(
            block,
            lambda x: _norm(kit.xp, x, self.norm, axes, is_wide) / math.sqrt(count),
        )

    def finish(self, measured: Any, at: Place) -> Any:
        """The factor for every slice; 1 where a zero norm is kept."""
        path = at.path
        norms = _norms(measured, self.norm)
        refuse_infinite(measured, self.norm, path, "normalized")
        zero = measured <= self.to * 1e-300  # below that, the factor is beyond float64
        if zero.any() and not self.keeps_zeros:
            raise ValueRefusal(
                f"'{path}' cannot be normalized",
                why=f"{int(zero.sum())} of its {norms} are 0"
                if measured.size > 1
                else f"its {norms} is 0",
                fix=worded(
                    "leave it out with {except}, or say {on_zero: keep} to keep these values as they are"
                ),
                path=str(path),
            )
        return self.to / (measured * ~zero + self.to * zero)


def factor_of(factor: NormFactor, recipe: Recipe, path: LeafPath) -> Made:
    """A factor that is measured of a leaf."""
    axes, shape = factor.axis, recipe.spec.shape
    shape = () if axes is None else tuple(1 if n in axes else s for n, s in enumerate(shape))
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype="float64")
    return Made(factor, (recipe,), spec, path)


def refuse_infinite(measured: Any, norm: str, path: LeafPath, what: str) -> None:
    """See that all norms are finite; ``what`` is done to the leaf by them.

    Raises:
        ValueRefusal: one is infinite, or NaN.
    """
    infinite = int((~(measured < math.inf)).sum())
    if infinite:
        norms = _norms(measured, norm)
        raise ValueRefusal(
            f"'{path}' cannot be {what}",
            why=f"{infinite} of its {norms} not finite"
            if measured.size > 1
            else f"its {norms} is not finite",
            fix="look for NaN and infinities with `surgery inspect --stats`",
            path=str(path),
        )


def _norms(measured: Any, norm: str) -> str:
    return f"{measured.size} {norm} norms" if measured.size > 1 else f"{norm} norm"


def _norm(xp: Any, x: Any, norm: str, axes: tuple[int, ...], is_wide: bool) -> Any:
    """The share of a block in a norm over ``axes``; squares of values that were wide already are kept in range."""
    if norm not in ("l1", "max") and is_wide:
        return root_of_squares(xp, x, axes)
    needs_size = norm in ("l1", "max") or xp.iscomplexobj(x)
    size = xp.abs(x) if needs_size else x
    if norm == "l1":
        return xp.sum(size, axis=axes, keepdims=True)
    if norm == "max":
        return xp.max(size, axis=axes, keepdims=True, initial=0.0)
    return xp.sqrt(xp.sum(size * size, axis=axes, keepdims=True))


def _spectral_norm(xp: Any, x: Any, pair: tuple[int, ...] | None) -> Any:
    """The largest singular values over a pair of axes, or of the whole as a matrix [..., last axis].

    They are the roots of the largest eigenvalues of the smaller Gram matrix; as exact for the largest, and far
    quicker than all singular values.
    """
    last = x.shape[-1]
    matrix = x.reshape(-1, last) if pair is None else xp.moveaxis(x, pair, (-2, -1))
    largest = xp.max(xp.abs(matrix), axis=(-2, -1), keepdims=True)
    is_finite = xp.isfinite(largest)
    unit = xp.where(is_finite & (largest > 0), largest, 1.0)
    matrix = xp.where(is_finite, matrix / unit, 0.0)
    adjoint = xp.conj(xp.swapaxes(matrix, -1, -2))
    gram = matrix @ adjoint if matrix.shape[-2] < matrix.shape[-1] else adjoint @ matrix
    top = xp.maximum(xp.linalg.eigvalsh(gram)[..., -1:, None], 0.0)
    norms = xp.where(is_finite, unit * xp.sqrt(top), math.nan)[..., 0, 0]
    return norms.reshape((1,) * x.ndim) if pair is None else xp.expand_dims(norms, tuple(pair))
