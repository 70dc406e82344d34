"""What is left of a twin's start, which no factor of its param scales."""

from __future__ import annotations

from typing import Any, NamedTuple

from surgery_cli.draft.kernel import Kit, Place
from surgery_cli.errors import ValueRefusal
from surgery_cli.words.advice import worded


class LeftOfStart(NamedTuple):
    """What is left of a twin's start, as the twin's dtype holds it: [] or 0.

    Rounding may have moved it by ``blur``: what lies no farther from it has gathered nothing that can be told.
    """

    value: Any
    kit: Kit
    even: bool
    blur: float = 0.0

    def scaled(self, x: Any, factor: Any) -> Any:
        """``x`` with all but what is left of the start times ``factor``."""
        if isinstance(self.value, float):
            return x * factor
        xp = self.kit.xp
        gathered = x - self.value
        new = (xp.maximum(gathered, 0) if self.even else gathered) * factor + self.value
        return xp.where(abs(gathered) <= self.blur, x, new) if self.blur else new

    def refuse_blurred(self, new: Any, factor: float, at: Place) -> None:
        """Refuse a result that would be rounding, times ``factor``, the largest of all.

        Raises:
            ValueRefusal: rounding may make out more than 1 % of the largest new value.
        """
        if not self.blur or factor <= 1:
            return
        largest = float(self.kit.apply(lambda x: abs(x).max(initial=0.0), self.kit.widened(new)))
        if self.blur * factor > 0.01 * largest:
            raise ValueRefusal(
                f"'{at.path}' cannot follow: what is left of its start hides what it gathered",
                why=f"{float(self.value):.3g} of it is left, rounded to about {self.blur:.1g}, which the edit would"
                f" multiply by {factor:.3g}",
                fix=worded("use {optimizer: keep} or `warm` for this edit"),
                path=str(at.path),
            )


def left_of_start(
    block: Any, start: float, blur: float, kit: Kit, at: Place, *, even: bool
) -> LeftOfStart:
    """What is left of the start of a twin, a block of which is given.

    Raises:
        ValueRefusal: the twin only grows, and is smaller than that somewhere.
    """
    if not start:
        return LeftOfStart(0.0, kit, even)
    value = kit.apply(lambda: kit.xp.full((), start, dtype="float64"))
    stored = kit.widened(kit.cast(value, at.inputs[0].dtype))
    smaller = int(kit.apply(lambda x: (x < stored - blur).sum(), kit.widened(block))) if even else 0
    if smaller:
        raise ValueRefusal(
            f"'{at.path}' cannot have {start:g} of its start in it",
            why=f"{smaller} of its values are smaller, and what it gathers is nowhere negative",
            fix=worded(
                "say in `slots:` at what it starts (`fresh:`, or `start:`), or use {optimizer: keep}"
            ),
            path=str(at.path),
        )
    return LeftOfStart(stored, kit, even, blur)
