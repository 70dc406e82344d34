"""Edits that give leaves new places: what stands there, in the params and their copies."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from surgery_cli.draft.arrangement import reshaped
from surgery_cli.draft.effect import Draws, Effect, Keeps, Takes
from surgery_cli.draft.expression import Made, Recipe, made
from surgery_cli.draft.kernels.convert import Convert, converted
from surgery_cli.draft.kernels.cut import Cut, Steps
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.kernels.sums import Plus, deviation_along, mean_along
from surgery_cli.draft.kernels.take import Take
from surgery_cli.draft.recipe import is_numeric
from surgery_cli.draft.settings import check_finite
from surgery_cli.errors import PlanError
from surgery_cli.operations import initializers
from surgery_cli.operations.factors import find_array
from surgery_cli.operations.initializing import Draw, Initializing
from surgery_cli.operations.noise import random_values, refuse_complex
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import listed

_COMPUTED: Final = ("mean", "repeat")
"""What may stand in new places beside the values of an initializer."""


class Filling(Rearranging, Initializing, kw_only=True, frozen=True):
    """An edit whose map grows leaves at the end of an axis: ``new_places`` fills what is new."""

    fill: Annotated[
        str,
        Meta(
            description="What stands in new places: `mean` (the default; the mean along the axis), `repeat` (the first"
            " places again, in order), or an initializer of `reinit`: `zeros`, `normal`, …"
        ),
    ] = ""
    with_: Annotated[
        str,
        Meta(
            description="In place of `fill`: an array file with the values of the new places, which broadcasts to them:"
            " `rows.npy`, `rows.npz:ENTRY`, `rows.npz` with an entry at the path of every leaf, a source."
        ),
    ] = msgspec.field(name="with", default="")
    noise: Annotated[
        float,
        Meta(
            description="Normal random values added in new places; their standard deviation, as a share of that which"
            " the old places have along the axis."
        ),
    ] = 0.0

    @property
    def _fill(self) -> str:
        return self.fill or "mean"

    @property
    def filling(self) -> Effect:
        if self.with_:
            return Takes()
        if self.noise:
            return Draws()
        return Keeps() if self._fill in _COMPUTED else self.effect_of(self._fill)

    def check_filling(self) -> None:
        """See that the settings say one thing.

        Raises:
            PlanError: they do not.
        """
        given = [name for name in initializers.PARAMETERS if getattr(self, name) is not None]
        if self.with_ and (others := [n for n in ("fill", "noise") if getattr(self, n)] + given):
            raise PlanError(
                worded("`{}` has both {with} and {}", self.name, FieldName(others[0])),
                why=worded("the array in {with} is what stands in new places"),
                fix="leave one of them out",
                field=others[0],
            )
        if self._fill in _COMPUTED and given:
            raise PlanError(
                worded("{fill: {}} has no parameter {}", self._fill, FieldName(given[0])),
                why="parameters are of initializers",
                fix="leave it out, or name an initializer",
                field=given[0],
            )
        self._check_name()
        self._check_noise()

    def _check_name(self) -> None:
        known = (*_COMPUTED, *initializers.INITIALIZERS)
        if self._fill not in known:
            close = nearest(self._fill, known)
            raise PlanError(
                worded("{fill: {}} is not known", self._fill),
                why="it is `mean`, `repeat`, or an initializer by its name in jax.nn.initializers",
                fix=f"perhaps {listed(close, word='or')}"
                if close
                else worded("an array file goes into {with}"),
                field="fill",
            )
        if self._fill in initializers.ORTHOGONAL:
            raise PlanError(
                worded("{fill: {}} does not fill some places of a leaf", self._fill),
                why="it makes whole matrices",
                fix=worded("choose another one, such as {fill: lecun_normal}"),
                field="fill",
            )

    def _check_noise(self) -> None:
        check_finite(self.noise, "noise")
        is_random = isinstance(self.filling, Draws) and self._fill not in _COMPUTED
        is_random = is_random and isinstance(self.effect_of(self._fill), Draws)
        if self.noise < 0 or (self.noise and is_random):
            raise PlanError(
                worded("{noise: {:g}} does not go with {fill: {}}", self.noise, self._fill)
                if is_random
                else worded("{noise: {:g}} is no share", self.noise),
                why="its values are random already" if is_random else "it is 0 or above",
                fix=worded("leave {noise} out")
                if is_random
                else worded("write a number such as {noise: 0.1}"),
                field="noise",
            )

    def check_leaf(self, spec: LeafSpec, axis: int, after: LeafSpec) -> None:
        """See that new places of such a leaf can be filled.

        Raises:
            PlanError: they cannot.
        """
        if self.with_:
            return
        if self.noise:
            refuse_complex(spec, "noise")
        if (self._fill == "mean" or self.noise) and not is_numeric(spec):
            raise PlanError(
                f"{spec.type_text} has no mean",
                why="means and random values are of floating leaves",
                fix=worded("choose {fill: zeros} or {fill: repeat} for it"),
                field="fill",
            )
        if (self._fill in _COMPUTED or self.noise) and not spec.size:
            raise PlanError(
                f"{spec.type_text} has no elements to go by",
                why="new places are made of old ones",
                fix=worded("choose {fill: zeros}"),
                field="fill",
            )
        if self._fill not in _COMPUTED:
            self.values_of(self._fill, after)

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        """What fills the new places, if there are any: it broadcasts to them, in the leaf's dtype."""
        by, leaf = self.map(recipe.spec), recipe.spec
        if by.grows is None:
            return ()
        after = by.output(leaf)
        shape = list(after.shape)
        shape[by.grows] -= leaf.shape[by.grows]
        places = msgspec.structs.replace(reshaped(after, tuple(shape)), sharding=None)
        if self.with_:
            rows = find_array(self.with_, path, places, scene, "array of new places", "with")
            return (converted(rows, msgspec.structs.replace(rows.spec, dtype=leaf.dtype), path),)
        base = self._base(path, recipe, by.grows, after, places, scene)
        if self.noise:
            drawn = random_values(Draw("normal", self.seed_in(scene)), after, path)
            inputs = (base, _ends(drawn, places, path), deviation_along(recipe, by.grows, path))
            return (Made(Plus(self.noise), inputs, places, path),)
        spec = msgspec.structs.replace(base.spec, dtype=leaf.dtype)
        return (made(Convert(), (base,), spec, path),)

    def _base(
        self,
        path: LeafPath,
        recipe: Recipe,
        axis: int,
        after: LeafSpec,
        places: LeafSpec,
        scene: States,
    ) -> Recipe:
        """What stands in new places, but for noise."""
        leaf = recipe.spec
        if self._fill == "mean":
            return mean_along(recipe, axis, path)
        if self._fill == "repeat":
            index = tuple(n % leaf.shape[axis] for n in range(places.shape[axis]))
            return made(Take(axis, index), (recipe,), places, path)
        kernel = self.kernel_of(self._fill, after, scene)
        if isinstance(kernel, Fill):
            return Made(kernel, (), LeafSpec(kind=LeafKind.NUMPY, dtype=leaf.dtype), path)
        return _ends(Made(kernel, (), after, path), places, path)


def _ends(whole: Recipe, places: LeafSpec, path: LeafPath) -> Recipe:
    """The last places of a leaf, as many as there are: random values are there what they would be in a whole leaf."""
    sizes = zip(whole.spec.shape, places.shape, strict=True)
    spec = msgspec.structs.replace(places, dtype=whole.spec.dtype)
    return Made(Cut(tuple(Steps(old - new, new) for old, new in sizes)), (whole,), spec, path)
