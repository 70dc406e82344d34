"""Shrink leaves and add random values, so that training from where it stood goes on as well as from new."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Shifts
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.kernels.sums import Plus
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import check_above_zero, check_finite
from surgery_cli.errors import PlanError
from surgery_cli.operations import initializers
from surgery_cli.operations.base import Scene
from surgery_cli.operations.initializing import Draw, noting_fans
from surgery_cli.operations.noise import check_deviation, random_values, refuse_complex
from surgery_cli.operations.numeric import Numeric
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class ShrinkAndPerturb(Numeric, tag="shrink-and-perturb", kw_only=True, frozen=True):
    """Multiply leaves by a number below 1 and add random values: normal ones, or those of an initializer.

    They depend on the seed and the path alone, and are those that `reinit` draws; copies of params in the optimizer
    state get the same. Sums are rounded once, to the leaf's own dtype.

    Source: Ash and Adams, On Warm-Starting Neural Network Training.
    """

    shrink: Annotated[
        float, Meta(description="What is left of the old values: above 0, at most 1.")
    ]
    std: Annotated[
        float | None, Meta(description="Standard deviation of normal random values, above 0.")
    ] = None
    init: Annotated[
        str,
        Meta(
            description="In place of `std`: an initializer of `reinit` with its usual settings, `lecun_normal` say."
        ),
    ] = ""
    perturb: Annotated[
        float, Meta(description="By what the initializer's values are multiplied, dimensionless.")
    ] = 1.0
    seed: Annotated[
        int | None,
        Meta(
            description="Seed of the random values; the plan's if left out. Each path has its own."
        ),
    ] = None

    example: ClassVar[str] = (
        "- op: shrink-and-perturb\n  at: params/Dense_0/kernel\n  shrink: 0.4\n  std: 0.01\n"
    )

    def check_values(self) -> None:
        super().check_values()
        if not 0 < self.shrink <= 1:
            raise PlanError(
                worded("{shrink: {:g}} does not shrink", self.shrink),
                why="it is what is left of the old values: above 0, at most 1",
                fix=worded("write a number such as {shrink: 0.4}"),
                field="shrink",
            )
        if bool(self.init) == (self.std is not None):
            raise PlanError(
                "`shrink-and-perturb` takes a standard deviation or an initializer"
                + (", not both" if self.init else ""),
                why="" if self.init else "nothing says what is added",
                fix=worded("say {std: 0.01}, or {init: lecun_normal}"),
                field="init" if self.init else "std",
            )
        if self.std is not None:
            check_deviation(self.std)
        check_finite(self.perturb, "perturb")
        if self.perturb == 0 or (self.perturb != 1 and not self.init):
            raise PlanError(
                worded("{perturb: {:g}} means nothing here", self.perturb),
                why=worded("{std} says how large random values are")
                if self.perturb
                else "nothing would be added",
                fix="leave it out" if self.perturb else "use `rescale` if that is meant",
                field="perturb",
            )

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        return noting_fans(after, draft, self.init) if self.init else after

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.has_array and spec.size == 0

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        refuse_complex(spec, self.name)
        if self.std is not None:
            check_above_zero(self.std, spec, "std")
        else:
            initializers.resolve(self.init, {}, spec)
        return spec

    @property
    def effect(self) -> Effect:
        return Shifts()

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Plus(self.perturb if self.std is None else self.std, self.shrink)

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        seed = scene.seed if self.seed is None else self.seed
        kernel: Kernel = Draw("normal", seed)
        if self.init:
            values = initializers.resolve(self.init, {}, recipe.spec)
            is_constant = values.distribution == "constant"
            kernel = Fill(values.scale) if is_constant else Draw.of(values, seed)
        return (random_values(kernel, recipe.spec, path),)
