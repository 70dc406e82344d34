"""Draw leaves anew from an initializer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft import Step
from surgery_cli.operations import initializers
from surgery_cli.operations.base import Cut, Kit, LeafOperation, Place, Scene
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

Axes = int | tuple[int, ...]


class Reinit(LeafOperation, tag="reinit", kw_only=True, frozen=True):
    """Draw leaves anew from an initializer of jax.nn.initializers."""

    init: Annotated[
        str, Meta(description="Initializer: `lecun_normal`, `he_uniform`, `zeros`, `normal`, …")
    ]
    seed: Annotated[
        int | None,
        Meta(
            description="Seed of the random values; the plan's if left out. Each path has its own."
        ),
    ] = None
    scale: Annotated[
        float | None,
        Meta(description="uniform: upper bound; variance_scaling, orthogonal: factor."),
    ] = None
    stddev: Annotated[
        float | None, Meta(description="normal, truncated_normal: standard deviation.")
    ] = None
    value: Annotated[float | None, Meta(description="constant: the value.")] = None
    lower: Annotated[
        float | None, Meta(description="truncated_normal: lower bound, in standard deviations.")
    ] = None
    upper: Annotated[
        float | None, Meta(description="truncated_normal: upper bound, in standard deviations.")
    ] = None
    mode: Annotated[
        Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"] | None,
        Meta(description="variance_scaling: by what the variance is divided."),
    ] = None
    distribution: Annotated[
        Literal["truncated_normal", "normal", "uniform"] | None,
        Meta(description="variance_scaling: the distribution of the values."),
    ] = None
    in_axis: Annotated[Axes | None, Meta(description="Axis, or axes, of the inputs; -2.")] = None
    out_axis: Annotated[Axes | None, Meta(description="Axis, or axes, of the outputs; -1.")] = None
    batch_axis: Annotated[
        Axes | None, Meta(description="Axes that stack independent kernels: not part of a fan.")
    ] = None
    column_axis: Annotated[
        int | None, Meta(description="orthogonal: the axis of the orthogonal columns; -1.")
    ] = None

    example: ClassVar[str] = "- op: reinit\n  at: params/Dense_0/kernel\n  init: lecun_normal\n"
    ignores_leaf: ClassVar[bool] = True
    default_policy: ClassVar[str] = "warm"

    @property
    def cut(self) -> Cut:
        return Cut.WHOLE if self.init in initializers.ORTHOGONAL else Cut.ELEMENTWISE

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.has_array and spec.size == 0

    def step(self, path: LeafPath, spec: LeafSpec, scene: Scene) -> Step:
        seeded = self if self.seed is not None else msgspec.structs.replace(self, seed=scene.seed)
        return super(Reinit, seeded).step(path, spec, scene)

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        self._values(spec)
        return spec

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        values = self._values(at.after)
        seed = self.seed or 0
        if values.distribution == "constant":
            drawn = kit.apply(lambda: kit.xp.full(at.shape, values.scale, dtype="float64"))
        elif values.distribution in initializers.ORTHOGONAL:
            is_delta = values.distribution == "delta_orthogonal"
            matrix = kit.orthogonal(seed, at, values.column_axis, is_delta=is_delta)
            drawn = values.scale * matrix
        else:
            drawn = kit.draw(values.distribution, seed, at, **values.bounds)
            drawn = drawn * values.scale + values.shift
        return kit.cast(drawn, at.after.dtype)

    def filled(self, before: float | None) -> float | None:
        constant = {"zeros": 0.0, "ones": 1.0, "constant": self.value}
        return constant.get(self.init)

    def _values(self, spec: LeafSpec) -> initializers.Values:
        """What is drawn for such a leaf."""
        given = {
            name: getattr(self, name)
            for name in initializers.PARAMETERS
            if getattr(self, name) is not None
        }
        return initializers.resolve(self.init, given, spec)
