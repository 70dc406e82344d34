"""The finite guard of a run: what stood where a block goes, and what was read for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from surgery_cli.draft.expression import Made, Recipe, Stored, parts
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.draft.recipe import SOURCE
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.finite import all_finite, check_finite
from surgery_cli.engine.reading import CountedSource
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.tree.paths import LeafPath


class FiniteGuard:
    """Refuses blocks with NaN or infinities that the source had not."""

    def __init__(self, sources: Mapping[str, CountedSource]) -> None:
        self._sources = sources

    def check(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        """Raises ValueRefusal: an edit made a value that is not finite."""
        origin = leaf.output.home
        is_ours = origin is not None and origin.source == SOURCE
        recipe = leaf.recipe
        stood_there = is_ours and isinstance(recipe, Stored) and recipe.ref == origin
        of = Composition(recipe)
        if stood_there or (of.moves_elements and of.only_moves):  # no value is new
            return
        path = origin.path if origin is not None and is_ours else leaf.draft_path
        before = partial(self._stood_there, path, leaf.spec.shape, window)
        if of.moves_elements:
            before = partial(self._was_read, recipe, window, values)
        check_finite(leaf.draft_path, values, before, partial(_author, recipe))

    def _stood_there(
        self, path: LeafPath, shape: tuple[int, ...], window: Window
    ) -> np.ndarray[Any, Any] | None:
        """What the source has where a block goes; None if it has nothing there, or of another shape.

        It is looked at, not used: what is replaced because it is damaged must not refuse the run.
        """
        if not self._sources[SOURCE].has_shape(path, shape):
            return None
        try:
            return np.asarray(self._sources[SOURCE].read(path, window))
        except (KeyError, IndexError, ValueError):
            return None

    def _was_read(
        self, recipe: Recipe, window: Window, values: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any] | None:
        """The values themselves, where what they are made of has some that are not finite: elements have moved."""
        read = (
            np.asarray(self._sources[part.ref.source].read(part.ref.path, place))
            for part, place in reads(recipe, window)
        )
        return None if all(map(all_finite, read)) else values


def _author(recipe: Recipe) -> str:
    """Who made the values last."""
    authors = [part.kernel.author for part in parts(recipe) if isinstance(part, Made)]
    return next((author for author in reversed(authors) if author), "the edit")
