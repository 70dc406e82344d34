"""Draw leaves anew from an initializer."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import Scene
from surgery_cli.operations.initializing import Initializing
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Reinit(Initializing, tag="reinit", kw_only=True, frozen=True):
    """Draw leaves anew from an initializer of jax.nn.initializers."""

    init: Annotated[
        str, Meta(description="Initializer: `lecun_normal`, `he_uniform`, `zeros`, `normal`, …")
    ]

    example: ClassVar[str] = "- op: reinit\n  at: params/Dense_0/kernel\n  init: lecun_normal\n"

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.has_array and spec.size == 0

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        return self.noting_fans_of(self.init, super().rewrite(draft, scene), draft)

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return self.kernel_of(self.init, spec, scene)

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        self.values_of(self.init, spec)
        return spec

    @property
    def effect(self) -> Effect:
        return self.effect_of(self.init)
