"""Go part of the way from one checkpoint to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Means, Shifts
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored, made
from surgery_cli.draft.kernels.deltas import AddDeltas
from surgery_cli.draft.kernels.gram import Gram, Slerp, gram_shape
from surgery_cli.draft.kernels.weighted_sum import WeightedMean
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.draft.source_leaves import find_leaf
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.counterparts import check_like
from surgery_cli.operations.layered import Layered, by_layer, check_layered
from surgery_cli.operations.merging import MergeLeaf, Merging, difference
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import FieldName, worded


class Interpolate(Merging, tag="interpolate", kw_only=True, frozen=True):
    """Go part of the way from one checkpoint to another, straight or along the arc between them.

    `lerp` is `(1 − t) · a + t · b`. `slerp` keeps to the arc, each leaf as one vector; where the cosine of their angle
    is above 0.9995 in size, or one of them is 0, it goes straight. `nuslerp` keeps to it at any angle above 1e-6, and
    with `base` goes between what the two have learnt beside it. Computed in float64, rounded once.

    Source: Shoemake, Animating rotation with quaternion curves; for `nuslerp`, mergekit.
    """

    t: Annotated[
        Layered,
        Meta(
            description="How far to go: 0 is the source, 1 the other. Several numbers lie at equal distances over the"
            " layers that a number in the pattern counts, with straight lines between them."
        ),
    ]
    method: Annotated[
        Literal["lerp", "slerp", "nuslerp"],
        Meta(description="Straight, or along the arc; see above."),
    ] = "lerp"
    base: Annotated[
        str, Meta(description="`nuslerp`: the checkpoint that both were trained from.")
    ] = ""
    axis: Annotated[
        int | tuple[int, ...] | None,
        Meta(
            description="`nuslerp`: the angle is taken over this axis, or these, for every place along the others;"
            " over all of them if left out."
        ),
    ] = None

    example: ClassVar[str] = "- op: interpolate\n  at: params\n  with: runs/other\n  t: 0.3\n"
    path_fields: ClassVar[tuple[str, ...]] = ("with", "base")
    most_others: ClassVar[int | None] = 1
    source_is_base: ClassVar[bool] = False

    @property
    def effect(self) -> Effect:
        return Means() if self.method == "lerp" and self.is_between else Shifts()

    @property
    def is_between(self) -> bool:
        numbers = (self.t,) if isinstance(self.t, int | float) else self.t
        return not self.base and all(0 <= number <= 1 for number in numbers)

    def check_values(self) -> None:
        check_layered(self.t, "t", -float("inf"), float("inf"), open_low=False)
        for field, is_given in (("base", bool(self.base)), ("axis", self.axis is not None)):
            if is_given and self.method != "nuslerp":
                raise PlanError(
                    worded("{} means nothing here", FieldName(field)),
                    why=worded("{method: {}} knows no such thing", self.method),
                    fix=worded("leave it out, or say {method: nuslerp}"),
                    field=field,
                )
        super().check_values()
        check_axes(self.axis, "axis")

    def merger(self, named: Selection, scene: Scene) -> MergeLeaf:
        far = by_layer(self.t, named, "t")

        def merged(path: LeafPath, recipe: Recipe, others: Sequence[Recipe]) -> Recipe:
            (other,) = others
            return self._on_the_way(path, recipe, other, far(path), scene)

        return merged

    def made(
        self, path: LeafPath, recipe: Recipe, scene: States, like: Recipe | None = None
    ) -> Recipe:
        """Of a slot, or a copy of params in the optimizer state: as far to the other's as its param went."""
        assert isinstance(like, Made)
        (other,) = self.partners(path, recipe, self.others(scene))
        return made(like.kernel, (recipe, other), recipe.spec, path)

    def _on_the_way(
        self, path: LeafPath, recipe: Recipe, other: Recipe, t: float, scene: States
    ) -> Recipe:
        spec = recipe.spec
        if self.method == "lerp" and 0 <= t <= 1:
            return made(WeightedMean((1 - t, t)), (recipe, other), spec, path)
        if self.method == "lerp":
            way = difference(other, recipe, path, narrow=False)
            return Made(AddDeltas((t,)), (recipe, way), spec, path)
        most = Slerp().most if self.method == "slerp" else 1.0
        axes = None if self.axis is None else resolve_axes(self.axis, len(spec.shape), "axis")
        base = self._base(path, spec, scene)
        if base is None:
            gram = gram_of((recipe, other), axes, path)
            return Made(Slerp(t=t, most=most), (recipe, other, gram), spec, path)
        learnt = [difference(end, base, path, narrow=False) for end in (recipe, other)]
        gram = gram_of(learnt, axes, path)
        return Made(Slerp(adds=True, t=t, most=most), (recipe, *learnt, gram), spec, path)

    def _base(self, path: LeafPath, spec: LeafSpec, scene: States) -> Recipe | None:
        if not self.base:
            return None
        name, source = scene.open(self.base)
        found = path
        if path not in source.tree:
            found = find_leaf(self.base, source, str(path), field="base")
        check_like(path, spec, self.base, source.tree[found], "merged")
        return Stored(LeafRef(name, found), source.tree[found])


def gram_of(leaves: Sequence[Recipe], over: tuple[int, ...] | None, path: LeafPath) -> Made:
    """The inner products of leaves of one shape, two by two."""
    shape = gram_shape(leaves[0].spec, over, len(leaves))
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype="float64")
    return Made(Gram(over), tuple(leaves), spec, path)
