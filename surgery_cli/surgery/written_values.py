"""What small leaves will be, element by element: computed for the preview as the run computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from surgery_cli.draft.expression import Recipe, stored_in
from surgery_cli.surgery.evaluated import evaluated

_MOST: Final = 4096
"""Elements of a leaf, and of all that it is made of, beyond which nothing is read for a preview."""


class WrittenValues:
    """Computes small leaves; ``bytes`` were read for them."""

    def __init__(self) -> None:
        self.bytes = 0

    def of(self, recipe: Recipe, source_of: Callable[[str], Any]) -> tuple[float, ...] | None:
        """The elements of a leaf of sources, which ``source_of`` gives by name; None if it takes large ones to tell.

        Raises:
            CheckpointError: a source cannot be read.
            ValueRefusal: the values must not be written.
        """
        parts = stored_in(recipe)
        if recipe.spec.size + sum(part.spec.size for part in parts) > _MOST:
            return None
        names = {part.ref.source for part in parts}
        values, count = evaluated(recipe, {name: source_of(name) for name in names})
        self.bytes += count
        return tuple(values.reshape(-1).astype("float64").tolist())
