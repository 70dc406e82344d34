"""Give position embeddings and patch kernels another resolution."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.arrangement import ShapeMap
from surgery_cli.draft.effect import Effect, Resamples
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernels.resample import Grid, Resample
from surgery_cli.draft.recipe import is_numeric
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import PLACES
from surgery_cli.operations.rearranging import ShapeEdit
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded

Sizes = int | tuple[int, ...]


class InterpolatePositions(ShapeEdit, tag="interpolate-positions", kw_only=True, frozen=True):
    """Interpolate position embeddings, in one dimension or on a grid, to another number of places; patch kernels, too.

    Position embeddings are interpolated as big_vision does: linearly, the corners of the grid staying corners. Kernels
    of patches take `method: pinv`, with `axis: [0, 1]` and the new height and width as `size`: what they give for
    resized patches is what they gave before.

    Without a policy, first moments of the optimizer restart, and second moments are interpolated with linear weights,
    which never make them negative; `transform` interpolates first moments by the weights of their params.

    Source: big_vision, resample_posemb and resample_patchemb; Beyer et al., FlexiViT.
    """

    size: Annotated[
        Sizes,
        Meta(
            description="The new size: a number of positions, or those of a grid along each of its axes, `24,24`."
        ),
    ]
    axis: Annotated[
        Sizes,
        Meta(
            description="The axis of the positions, with a grid in C order; or several, one for each number of `size`."
        ),
    ] = -2
    grid: Annotated[
        Sizes | None,
        Meta(
            description="The size of the grid as it is, where it is not as long along all of its axes: `14,16`."
        ),
    ] = None
    keep_first: Annotated[
        Annotated[int, Meta(ge=0)],
        Meta(
            description="How many positions in front are no part of the grid, and stay: class tokens."
        ),
    ] = 0
    method: Annotated[
        Literal["linear", "cubic", "pinv"],
        Meta(
            description="How: `linear`, `cubic` (bilinear and bicubic on a grid), or `pinv` for kernels of patches."
        ),
    ] = "linear"
    align: Annotated[
        Literal["corners", "centers"] | None,
        Meta(
            description="`corners`: first and last positions stay (`scipy.ndimage.zoom`; for `linear` if nothing is"
            " said); `centers`: positions are areas (`jax.image.resize`)."
        ),
    ] = None

    example: ClassVar[str] = (
        "- op: interpolate-positions\n  at: params/Dense_0/kernel\n  axis: 0\n  size: 7\n"
    )

    @property
    def effect(self) -> Effect:
        return Resamples()

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        return Resamples(self.map(before))

    @property
    def _align(self) -> str:
        return self.align or ("corners" if self.method == "linear" else "centers")

    @property
    def _old(self) -> tuple[int, ...]:
        """The size of the grid as it is, where the edit says it."""
        return (self.grid,) if isinstance(self.grid, int) else self.grid or ()

    @property
    def _size(self) -> tuple[int, ...]:
        return (self.size,) if isinstance(self.size, int) else self.size

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")
        if self.method == "pinv" and self._align != "centers":
            raise PlanError(
                worded("{method: pinv} does not go with {align: corners}"),
                why="images are resized with pixels as areas",
                fix=worded("leave {align} out"),
                field="align",
            )
        new = self._size
        if not new or any(size < 1 for size in new):
            raise PlanError(
                worded("{size: {}} is no size", self._text(new)),
                why="sizes are 1 or more",
                fix=worded("write the new size, such as {size: '24,24'}"),
                field="size",
            )
        if any(size < 1 for size in self._old):
            raise PlanError(
                worded("{grid: {}} is no size", self._text(self._old)),
                why="sizes are 1 or more",
                fix=worded("write the size that it has now, such as {grid: '14,16'}"),
                field="grid",
            )
        PLACES.check(math.prod(new), "the interpolated axis", PlanError)

    def map(self, leaf: LeafSpec) -> ShapeMap:
        if not is_numeric(leaf):
            raise PlanError(
                f"{self.name} does not apply to {leaf.type_text}",
                why="sums by weights are of floating leaves",
                fix=worded("add {where_dtype: floating} to skip such leaves"),
            )
        axes = resolve_axes(self.axis, len(leaf.shape), "axis")
        if len(axes) == 1:
            return Resample((self._grid(leaf, axes[0], self._size),), self.method, self._align)
        return Resample(self._axes(leaf, axes, self._size), self.method, self._align)

    def _axes(
        self, leaf: LeafSpec, axes: tuple[int, ...], new: tuple[int, ...]
    ) -> tuple[Grid, ...]:
        """Several axes, each with a size of its own."""
        if len(axes) != len(new) or self.grid is not None or self.keep_first:
            field = "grid" if self.grid is not None else "keep_first" if self.keep_first else "size"
            raise PlanError(
                worded(
                    "{axis: {}} needs {size} with as many numbers, and nothing else",
                    self._text(axes),
                ),
                why="of several axes, each has one size",
                fix=worded("write {axis: '0,1'} with {size: '32,32'}"),
                field=field,
            )
        return tuple(
            Grid(axis, (leaf.shape[axis],), (size,)) for axis, size in zip(axes, new, strict=True)
        )

    def _grid(self, leaf: LeafSpec, axis: int, new: tuple[int, ...]) -> Grid:
        """A grid along one axis."""
        count = leaf.shape[axis] - self.keep_first
        side = round(max(count, 0) ** (1 / len(new)))
        old = (side,) * len(new) if self.grid is None else self._old
        if math.prod(old) == count and len(old) == len(new) and min(old) > 0:
            return Grid(axis, old, new, self.keep_first)
        kept = f" behind {self.keep_first} that stay" if self.keep_first else ""
        raise PlanError(
            worded("{} is no grid for {size: {}}", leaf.type_text, self._text(new))
            if self.grid is None
            else worded("{grid: {}} does not fit {}", self._text(old), leaf.type_text),
            why=f"axis {axis} has {max(count, 0)} positions{kept}, and no number times itself is that"
            if self.grid is None and len(new) > 1
            else f"axis {axis} has {max(count, 0)} positions{kept}",
            fix=worded(
                "say {grid: '14,16'}, with the height and width that it has now, and {keep_first: 1} for a class token"
            ),
            field="grid",
        )

    @staticmethod
    def _text(sizes: tuple[int, ...]) -> str:
        return ",".join(map(str, sizes))
