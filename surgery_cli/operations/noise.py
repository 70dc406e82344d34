"""Add random values to leaves."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Shifts
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.sums import Plus, deviation_of
from surgery_cli.draft.settings import check_above_zero, check_finite
from surgery_cli.errors import PlanError
from surgery_cli.operations.initializing import Draw
from surgery_cli.operations.numeric import Numeric
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded


class Noise(Numeric, tag="noise", kw_only=True, frozen=True):
    """Add normal random values of mean 0 to leaves.

    They depend on the seed and the path alone, and are those that `reinit` draws with `normal`; copies of params in the
    optimizer state get the same. Sums are rounded once, to the leaf's own dtype.
    """

    std: Annotated[float, Meta(description="Standard deviation of the random values, above 0.")]
    relative: Annotated[
        bool, Meta(description="`std` is a share of the leaf's own standard deviation.")
    ] = False
    seed: Annotated[
        int | None,
        Meta(
            description="Seed of the random values; the plan's if left out. Each path has its own."
        ),
    ] = None
    on_zero: Annotated[
        Literal["error", "keep"],
        Meta(
            description="`relative`: what to do where all elements are equal: refuse, or keep them."
        ),
    ] = "error"

    example: ClassVar[str] = "- op: noise\n  at: params/Dense_0/kernel\n  std: 0.01\n"

    def check_values(self) -> None:
        super().check_values()
        check_deviation(self.std)

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.has_array and spec.size == 0

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        refuse_complex(spec, self.name)
        if not self.relative:
            check_above_zero(self.std, spec, "std")
        return spec

    @property
    def effect(self) -> Effect:
        return Shifts()

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Plus(self.std)

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        seed = scene.seed if self.seed is None else self.seed
        drawn = random_values(Draw("normal", seed), recipe.spec, path)
        if not self.relative:
            return (drawn,)
        return (drawn, deviation_of(recipe, path, keeps_zeros=self.on_zero == "keep"))


def random_values(kernel: Kernel, spec: LeafSpec, path: LeafPath) -> Recipe:
    """Random values for every element of a leaf, not rounded: [its shape], float64."""
    wide = msgspec.structs.replace(
        spec, kind=LeafKind.NUMPY, dtype="float64", stored_bytes=None, chunk_shape=None
    )
    return Made(kernel, (), wide, path)


def check_deviation(std: float) -> None:
    """See that a standard deviation is one.

    Raises:
        PlanError: it is not finite, or not above 0.
    """
    check_finite(std, "std")
    if std <= 0:
        raise PlanError(
            worded("{std: {:g}} is no standard deviation", std),
            why="at 0, nothing would change" if std == 0 else "it is above 0",
            fix=worded("write a number above 0, such as {std: 0.01}"),
            field="std",
        )


def refuse_complex(spec: LeafSpec, name: str) -> None:
    """Raise for complex leaves, for which no random values are drawn."""
    if is_complex(spec.dtype):
        raise PlanError(
            f"{name} does not apply to {spec.type_text}",
            why="random values are real",
            fix=worded("leave it out with {except}"),
        )
