"""Bound leaves, element by element or by their norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Scales, Shifts
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.scale import Multiply
from surgery_cli.draft.settings import check_axes, check_finite, check_fits, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.normalize import NormFactor, factor_of, refuse_infinite
from surgery_cli.operations.numeric import Numeric
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Clip(Numeric, tag="clip", kw_only=True, frozen=True):
    """Bound elements to a range, or leaves to a norm, over all axes or over given ones; what is within stays.

    A leaf that is larger than the norm is scaled down, and the optimizer's slots follow as they do a factor. Nothing
    tells how slots follow a range: they stay.
    """

    min: Annotated[float | None, Meta(description="The least value; what is below becomes it.")] = (
        None
    )
    max: Annotated[
        float | None, Meta(description="The largest value; what is above becomes it.")
    ] = None
    norm: Annotated[
        float | None,
        Meta(description="In place of a range: the largest l2 norm, above 0, dimensionless."),
    ] = None
    axis: Annotated[
        int | tuple[int, ...] | None,
        Meta(description="Axis, or axes, to take the norm over; all of them if left out."),
    ] = None

    example: ClassVar[str] = "- op: clip\n  at: params/Dense_0/kernel\n  norm: 1.0\n"

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")
        has_range = self.min is not None or self.max is not None
        if has_range == (self.norm is not None):
            raise PlanError(
                "`clip` takes a range or a norm" + (", not both" if has_range else ""),
                why="" if has_range else "nothing says what the bounds are",
                fix=worded("say {min: -1} and {max: 1}, one of them, or {norm: 1.0}"),
                field="norm" if has_range else "max",
            )
        for field in ("min", "max", "norm"):
            if getattr(self, field) is not None:
                check_finite(getattr(self, field), field)
        if self.norm is not None and self.norm <= 0:
            raise PlanError(
                worded("{norm: {:g}} is no norm", self.norm),
                why="a largest norm is above 0",
                fix=worded("write a number above 0, such as {norm: 1.0}"),
                field="norm",
            )
        if self.min is not None and self.max is not None and self.min > self.max:
            raise PlanError(
                worded("{min: {:g}} is above {max: {:g}}", self.min, self.max),
                fix="exchange them",
                field="min",
            )
        if self.axis is not None and self.norm is None:
            raise PlanError(
                worded("{axis} means nothing here"),
                why="elements are held against a range one by one",
                fix="leave it out",
                field="axis",
            )

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.has_array and spec.size == 0

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        if self.norm is not None:
            if self.axis is not None:
                resolve_axes(self.axis, len(spec.shape), "axis")
            return spec
        if is_complex(spec.dtype):
            raise PlanError(
                f"{spec.type_text} has no range",
                why="complex numbers are neither larger nor smaller than others",
                fix=worded("say {norm: 1.0}, or leave it out with {except}"),
            )
        for field in ("min", "max"):
            if getattr(self, field) is not None:
                check_fits(getattr(self, field), spec, field)
        return spec

    @property
    def effect(self) -> Effect:
        if self.norm is not None:
            return Scales()
        return Shifts(keeps_signs=self.max is None or self.max >= 0)

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        if self.norm is not None and isinstance(recipe, Made):
            return Scales(recipe.inputs[1], is_positive=True)
        return self.effect

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Within(self.min, self.max) if self.norm is None else ScaledDown()

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        if self.norm is None:
            return ()
        ndim = len(recipe.spec.shape)
        axes = None if self.axis is None else resolve_axes(self.axis, ndim, "axis")
        return (factor_of(ClipFactor("l2", self.norm, axes), recipe, path),)


class Within(Kernel, frozen=True, tag="within"):
    """A leaf whose elements are at least ``low`` and at most ``high``; NaN stays."""

    low: float | None = None
    high: float | None = None

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        return kit.in_float32(blocks[0], lambda x: kit.xp.clip(x, self.low, self.high))


class ScaledDown(Multiply, frozen=True, tag="scaled_down"):
    """A leaf times the factor that bounds its norm."""

    way_out: ClassVar[str] = "clip to a larger norm, or cast the leaf to a wider dtype first"


class ClipFactor(NormFactor, frozen=True, tag="clip"):
    """The factor, at most 1, by which a norm becomes at most ``to``."""

    def finish(self, measured: Any, at: Place) -> Any:
        refuse_infinite(measured, self.norm, at.path, "clipped by its norm")
        is_above = measured > self.to
        return self.to / (measured * is_above + self.to * ~is_above)
