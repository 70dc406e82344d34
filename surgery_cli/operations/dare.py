"""Merge what fine-tunes have learnt, of which a random part is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.deltas import DropRandom
from surgery_cli.operations.base import Scene
from surgery_cli.operations.electing import Thinning
from surgery_cli.tree.paths import Selection


class Dare(Thinning, tag="dare", kw_only=True, frozen=True):
    """Add to the source what fine-tunes of it have learnt, each with random elements dropped, and the others larger.

    Every element of a difference is left with the probability `density` and divided by it, else 0; which ones depends
    on the seed, the member's place in `with` and the path alone. Then they are added as in `task-arithmetic`, divided
    by the sum of the weights if `normalize`, or with elected signs as in `ties`. Computed in float32 or wider, rounded
    once.

    Source: Yu et al., Language Models are Super Mario: Absorbing Abilities from Homologous Models as a Free Lunch.
    """

    consensus: Annotated[
        Literal["linear", "ties"],
        Meta(description="Add all, or only those that have the elected sign."),
    ] = "linear"
    seed: Annotated[
        int | None,
        Meta(description="Seed of what is dropped; the plan's if left out."),
    ] = None

    example: ClassVar[str] = (
        "- op: dare\n  at: params\n  with: [runs/other, runs/third]\n  density: 0.5\n"
    )

    nothing_left: ClassVar[str] = "chance leaves little or nothing of what was learnt"

    def left_of(self, size: int, density: float) -> int:
        return round(density * size)

    @property
    def elects(self) -> bool:
        return self.consensus == "ties"

    def thinner(self, named: Selection, scene: Scene) -> Callable[[Made, float, int], Recipe]:
        seed = scene.seed if self.seed is None else self.seed

        def thinned(delta: Made, density: float, member: int) -> Recipe:
            if density == 1:
                return delta
            return Made(DropRandom(density, seed, member), (delta,), delta.spec, delta.path)

        return thinned
