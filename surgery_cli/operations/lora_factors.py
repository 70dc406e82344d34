"""A and B of what a fine-tune has learnt: of a rank, or of the least with which no more than so much is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from surgery_cli.draft.arrangement import rearranged
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.deltas import Difference
from surgery_cli.draft.kernels.truncated_svd import Axes, SingularValues, SvdFactor, TruncatedSvd
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.lora_layout import Fit, Layout, Misfit, stated
from surgery_cli.operations.lora_products import with_product
from surgery_cli.tree.dtypes import FLOATS
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded


class Learnt(NamedTuple):
    """A kernel, its like in the fine-tune, and where its A and B go."""

    base: Recipe
    tuned: Recipe
    a: LeafPath
    b: LeafPath


class Factoring(NamedTuple):
    """How A and B are made; see ``ExtractLora``."""

    layout: str
    scan_axis: int | None
    rank: int | None
    error: float | None
    split: str
    scale: float
    dtype: str

    def _fit(self, path: LeafPath, kernel: LeafSpec, rank: int) -> Fit:
        """How A and B of a rank make the kernel."""
        layout = stated(self.layout, self.scan_axis)
        try:
            return layout.fit(*layout.factors(kernel.shape, rank), kernel.shape)
        except Misfit as misfit:
            raise PlanError(
                f"'{path}' does not go with {self.layout!r}",
                why=str(misfit),
                fix=worded(
                    "name its axes: {layout: '{}'}", "embed r, r heads dim -> embed heads dim"
                ),
                field="layout",
            ) from None

    def factors(self, path: LeafPath, one: Learnt, scene: Scene) -> dict[LeafPath, Recipe]:
        """A and B: two parts of one decomposition."""
        kernel = one.base.spec
        text = self._fit(path, kernel, 1).axes
        axes = Axes.of(text, kernel.shape)
        rows, columns = axes.count(axes.rows), axes.count(axes.columns)
        rank = self.rank or self._rank_by_error(path, one, text, axes, scene)
        if rank > min(rows, columns):
            raise PlanError(
                f"'{path}' has no rank {rank}: as a matrix it is {rows} by {columns}",
                why=f"{min(rows, columns)} is all that there can be",
                fix=worded("choose a smaller {rank}, or leave it out with {except}"),
                field="rank",
            )
        svd = TruncatedSvd(axes_text=text, rank=rank, split=self.split, by=self.scale)
        shape = (axes.count(axes.shared), rows + columns, rank)
        packed = Made(
            svd,
            (one.tuned, one.base),
            LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype="float64"),
            path,
        )
        layout = stated(self.layout, self.scan_axis)
        specs = self._specs(kernel, layout, layout.factors(kernel.shape, rank))
        made: dict[LeafPath, Recipe] = {}
        for side, place, spec in zip("ab", (one.a, one.b), specs, strict=True):
            factor = SvdFactor(axes=text, shape=kernel.shape, side=side)
            made[place] = Made(factor, (packed,), spec, place)
        return made

    def _rank_by_error(
        self, path: LeafPath, one: Learnt, text: str, axes: Axes, scene: Scene
    ) -> int:
        """The least rank with which no more is left out than may be, rounding of A and B included."""
        assert self.error is not None
        rounding = 2 * FLOATS[self.dtype or one.base.spec.dtype].rounding
        if self.error <= rounding:
            raise PlanError(
                worded("{error: {:g}} is less than what rounding leaves out", self.error),
                why=f"A and B are {self.dtype or one.base.spec.dtype}",
                fix=worded("allow more than {:g}, or say {dtype: float32}", rounding),
                field="error",
            )
        shape = (axes.count(axes.shared), min(axes.count(axes.rows), axes.count(axes.columns)))
        spec = LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype="float64")
        part = Made(SingularValues(axes_text=text), (one.tuned, one.base), spec, path)
        squares = [math.fsum(column) for column in zip(*scene.measured(part).tolist(), strict=True)]
        allowed = (self.error**2 - rounding**2) * math.fsum(squares)
        rank = len(squares)
        while rank > 1 and math.fsum(squares[rank - 1 :]) <= allowed:
            rank -= 1
        return rank

    def _specs(
        self, kernel: LeafSpec, layout: Layout, shapes: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> list[LeafSpec]:
        """What A and B will be: their axes as those of the kernel lie."""
        specs = []
        for groups, shape in zip((layout.a, layout.b), shapes, strict=True):
            origins = [
                layout.kernel.index(group[0])
                if len(group) == 1 and group[0] in layout.kernel
                else None
                for group in groups
            ]
            spec = rearranged(kernel, shape, origins)
            specs.append(msgspec.structs.replace(spec, dtype=self.dtype or kernel.dtype))
        return specs

    def left_out(
        self, path: LeafPath, one: Learnt, factors: Mapping[LeafPath, Recipe]
    ) -> tuple[Recipe, Recipe]:
        """What has been learnt, and what of it A and B leave out."""
        kernel = one.base.spec
        wide = LeafSpec(
            kind=LeafKind.NUMPY,
            shape=kernel.shape,
            dtype="float64",
            chunk_shape=kernel.chunk_shape,
        )
        learnt = Made(Difference(), (one.tuned, one.base), wide, path)
        rest = with_product(
            path, learnt, wide, factors, self.layout, self.scan_axis, lambda _: -self.scale
        )
        return learnt, rest
