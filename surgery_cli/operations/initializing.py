"""Edits that draw values from an initializer: the settings that they share, and the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from surgery_cli.draft.effect import Draws, Effect, Sets
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.recipe import Draft
from surgery_cli.operations import initializers
from surgery_cli.operations.base import Operation
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_LARGEST_WINDOW = 11
"""The side of a convolution window, up to which two equal axes in front are taken for one."""

_NEEDS = worded("a stack of layers needs {batch_axis: 0}, attention heads {in_axis} and {out_axis}")

Axes = int | tuple[int, ...]


class Initializing(Operation, kw_only=True, frozen=True):
    """An edit that may draw values from an initializer of jax.nn.initializers: how, but for which it is."""

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

    def seed_in(self, scene: States) -> int:
        """The seed of the edit, else that of the plan."""
        return scene.seed if self.seed is None else self.seed

    @property
    def given(self) -> dict[str, Any]:
        """The parameters of the initializer that the edit says."""
        said = {name: getattr(self, name) for name in initializers.PARAMETERS}
        return {name: value for name, value in said.items() if value is not None}

    def values_of(self, init: str, spec: LeafSpec) -> initializers.Values:
        """What an initializer draws for such a leaf. Raises as ``initializers.resolve``."""
        return initializers.resolve(init, self.given, spec)

    def kernel_of(self, init: str, spec: LeafSpec, scene: States) -> Kernel:
        """What makes such a leaf by an initializer. Raises as ``initializers.resolve``."""
        values = self.values_of(init, spec)
        if values.distribution == "constant":
            return Fill(values.scale)
        return Draw.of(values, self.seed_in(scene))

    def effect_of(self, init: str) -> Effect:
        """What an initializer does to values, whatever they were."""
        constant = {"zeros": 0.0, "ones": 1.0, "constant": self.value}.get(init)
        return Draws(init == "uniform") if constant is None else Sets(constant)

    def noting_fans_of(self, init: str, after: Draft, before: Draft) -> Draft:
        """``after`` with what was taken for fans, unless the edit says what the axes are; see ``noting_fans``."""
        has_roles = not (self.in_axis is self.out_axis is self.batch_axis is None)
        return after if has_roles else noting_fans(after, before, init)


class Draw(Kernel, frozen=True, tag="reinit"):
    """Random values, of their own for every path: ``shift + scale · x``; see ``initializers.Values``."""

    distribution: str
    seed: int
    scale: float = 1.0
    shift: float = 0.0
    lower: float | None = None
    upper: float | None = None
    column_axis: int = -1

    @classmethod
    def of(cls, values: initializers.Values, seed: int) -> Draw:
        """What an initializer draws."""
        return cls(
            values.distribution,
            seed,
            values.scale,
            values.shift,
            column_axis=values.column_axis,
            **values.bounds,
        )

    @property
    def is_whole(self) -> bool:
        return self.distribution in initializers.ORTHOGONAL

    def temporary_bytes(self, leaf: LeafSpec) -> int | None:
        """Of an orthogonal matrix in float64: the normal values, the factors, and copies that NumPy and LAPACK make."""
        if self.distribution == "delta_orthogonal":
            return 8 * (leaf.size + 5 * math.prod(leaf.shape[-2:]))
        return 8 * 5 * leaf.size

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        if self.is_whole:
            is_delta = self.distribution == "delta_orthogonal"
            drawn = kit.orthogonal(self.seed, at, self.column_axis, is_delta=is_delta)
            drawn *= self.scale
        else:
            given = {"lower": self.lower, "upper": self.upper}
            bounds = {name: bound for name, bound in given.items() if bound is not None}
            drawn = kit.draw(self.distribution, self.seed, at, **bounds)
            drawn = drawn * self.scale + self.shift
        return kit.cast(drawn, at.output.dtype)


def noting_fans(after: Draft, before: Draft, init: str) -> Draft:
    """``after`` with what an initializer took for fans, where an edit drew leaves of more than two axes."""
    drawn: dict[tuple[int, ...], list[LeafPath]] = {}
    for path, recipe in after.leaves.items() if init in initializers.WITH_FANS else ():
        is_drawn = recipe is not before.leaves.get(path) and path not in after.slots
        if is_drawn and len(recipe.spec.shape) > 2:
            drawn.setdefault(recipe.spec.shape, []).append(path)
    return after.noting(*_fan_notes(init, drawn))


def _fan_notes(init: str, drawn: Mapping[tuple[int, ...], Sequence[LeafPath]]) -> list[Consequence]:
    """Which fans were used where nobody said what the axes are: all convolutions in one note, others by shape."""
    windows: list[str] = []
    others: list[str] = []
    for shape, paths in drawn.items():
        fan_in, fan_out = initializers.fans(shape)
        sizes = ",".join(map(str, shape))
        said = f"{quoted(paths, 1)} [{sizes}]: fan_in {fan_in:.15g}, fan_out {fan_out:.15g}"
        (windows if _is_convolution(shape) else others).append(said)
    meant = "first axes counted as a convolution window"
    notes = (
        [Consequence(DocsPage.REINIT, f"{init}: {'; '.join(windows)} ({meant})")] if windows else []
    )
    return notes + [
        Consequence(DocsPage.REINIT, Text(f"{init}: {said} ({meant}); ", _NEEDS)) for said in others
    ]


def _is_convolution(shape: tuple[int, ...]) -> bool:
    """True if the axes in front look like the window of an image: [n, n, inputs, outputs], n small."""
    window = shape[:-2]
    return len(window) > 1 and len(set(window)) == 1 and window[0] <= _LARGEST_WINDOW
