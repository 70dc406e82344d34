"""Edits that say by an initializer what leaves become: kernels by one, biases perhaps by another."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from surgery_cli.draft.kernel import Kernel
from surgery_cli.operations import initializers
from surgery_cli.operations.initializing import Initializing
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Drawing(Initializing, kw_only=True, frozen=True):
    """An edit that says leaves by an initializer."""

    init: Annotated[
        str, Meta(description="Initializer: `lecun_normal`, `he_uniform`, `zeros`, `normal`, …")
    ]
    bias_init: Annotated[
        Literal["zeros", "ones"] | None,
        Meta(description="Initializer of leaves with fewer than two axes; `init` if left out."),
    ] = None

    def check_values(self) -> None:
        super().check_values()
        if self.init:  # `add` may say something else
            initializers.settings_of(self.init, self.given)

    def init_of(self, leaf: LeafSpec) -> str:
        """The initializer of such a leaf."""
        return self.bias_init if self.bias_init and len(leaf.shape) < 2 else self.init

    def drawn(self, leaf: LeafSpec, scene: States) -> Kernel:
        """What makes such a leaf. Raises as ``initializers.resolve``."""
        return self.kernel_of(self.init_of(leaf), leaf, scene)

    def values_of(self, init: str, spec: LeafSpec) -> initializers.Values:
        if init != self.init:
            return initializers.resolve(init, {}, spec)
        if init in initializers.WITH_FANS and len(spec.shape) < 2 and self.in_axis is None:
            zeros = worded(
                "{bias_init: zeros} beside kernels (`ones` for the scales of norms), {init: zeros} or {init: normal}"
            )
            raise initializers.without_fans(init, spec.shape, zeros)
        return super().values_of(init, spec)
