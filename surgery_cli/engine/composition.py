"""What an expression is made of, looked at once for all who ask: a plan may make thousands of leaves."""

from __future__ import annotations

from collections import Counter
from typing import Final

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.expression import Made, Recipe, parts
from surgery_cli.draft.kernel import Measurement
from surgery_cli.tree.specs import LeafKind

MOST_KEPT: Final = 3
"""So many stored leaves stand in memory together while a block is computed tile by tile. More of them (an average of
many checkpoints) are read one after the other for the whole block, whose sum then costs more memory than they would."""


class Composition:
    """The parts of an expression, and what follows from them.

    ``measured`` is what is measured for it, inner measurements first; ``kernels`` compute every block: neither the
    measurements nor what they are taken of is among them.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._parts = parts(recipe)
        self._made = [part for part in self._parts if isinstance(part, Made)]
        self.measured = [part for part in self._made if isinstance(part.kernel, Measurement)]
        computed, made = self._parts, self._made
        if self.measured:
            computed = parts(recipe, beyond=lambda part: not isinstance(part.kernel, Measurement))
            made = [part for part in computed if isinstance(part, Made)]
        self.kernels = [part.kernel for part in made]
        self._stored_count = len(computed) - len(made)

    @property
    def is_whole(self) -> bool:
        """True if a part needs the whole leaf in memory, or the values are no array."""
        is_text = self.recipe.spec.kind is LeafKind.STRING
        return is_text or any(part.kernel.is_whole for part in self._made)

    @property
    def is_divisible(self) -> bool:
        """True if a block may be computed in tiles: all stored leaves that it is made of are kept meanwhile."""
        if not isinstance(self.recipe, Made) or isinstance(self.recipe.kernel, Arrangement):
            return False
        is_whole = any(kernel.is_whole for kernel in self.kernels)
        return self._stored_count <= MOST_KEPT and not is_whole

    @property
    def moves_elements(self) -> bool:
        """True if elements stand elsewhere than in what they are made of."""
        return not all(part.kernel.keeps_places for part in self._made)

    @property
    def needed_again(self) -> frozenset[int]:
        """The identities of the parts of which more than one other is made, and of what these are made of."""
        uses = [id(one) for part in self._made for one in part.inputs]
        if len(uses) < len(self._parts):  # no part has two uses
            return frozenset()
        again = {part for part, count in Counter(uses).items() if count > 1}
        for part in reversed(self._made) if again else ():
            if id(part) in again:
                again.update(id(one) for one in part.inputs)
        return frozenset(again)
