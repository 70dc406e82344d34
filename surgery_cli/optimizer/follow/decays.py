"""The decays of an optimizer's moments: as stored in the checkpoint, else as tried out, else its factory's defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.clocks import standing
from surgery_cli.optimizer.knowledge.usual_decays import decay_arguments
from surgery_cli.tree.paths import LeafPath


class Decays(msgspec.Struct, frozen=True):
    """How much of the first and of the second moments a step leaves, and which of both the checkpoint stores.

    ``names`` are those of the arguments.
    """

    first: float
    second: float
    are_stored: tuple[bool, bool] = (False, False)
    names: tuple[str, str] = ("b1", "b2")

    @property
    def words(self) -> str:
        """The decays as people write them."""
        both = zip(self.names, (self.first, self.second), self.are_stored, strict=True)
        return " and ".join(
            f"{'stored ' if is_stored else ''}{name} = {decay:.6g}"
            for name, decay, is_stored in both
            if decay or is_stored
        )


def decays_tried(slots: Iterable[Slot]) -> Decays | None:
    """The decays that a trial of the optimizer showed of the slots of one state; None if it did not show all.

    A moment that the state does not keep has none: 0.
    """
    every = list(slots)
    found = []
    for is_second in (False, True):
        own = [slot.decay for slot in every if slot.is_second_moment is is_second]
        shown = [decay for decay in own if decay is not None]
        if own and not shown:
            return None
        found.append(max(shown, default=0.0))
    return Decays(found[0], found[1]) if any(found) else None


def decays_of(slot: Slot, draft: Draft, number: Callable[[LeafRef], float | None]) -> Decays | None:
    """The decays of the moments in a slot's state, as the plan leaves them; None if they are not known.

    ``number`` reads a stored one.
    ``optax.inject_hyperparams`` keeps the arguments of its factory under their names.
    """
    values: list[float] = []
    stored: list[bool] = []
    beside = (one for one in draft.slots_of.get(slot.param, ()) if one.state == slot.state)
    tried = decays_tried(beside)
    arguments = decay_arguments(slot.kinds, slot.factory)
    for n, (name, usual) in enumerate(arguments):
        place = _place_of(name, slot, draft) if name else None
        taken = usual if tried is None else (tried.first, tried.second)[n]
        value = taken if place is None else standing(draft.leaves[place], number)
        if value is None or not 0 <= value < 1:
            return None
        values.append(value)
        stored.append(place is not None)
    if not values:
        return None
    first, second = (argument.name.removeprefix("adam_") for argument in arguments)
    return Decays(values[0], values[1], (stored[0], stored[1]), (first or "b1", second))


def _place_of(name: str, slot: Slot, draft: Draft) -> LeafPath | None:
    """Where the nearest state around the slot keeps the argument; None if none does."""
    for length in range(len(slot.path) - 1, -1, -1):
        place = LeafPath((*slot.path[:length], "hyperparams", name))
        for path in (place, LeafPath((*place, "value"))):
            if path in draft.leaves and draft.leaves[path].spec.size == 1:
                return path
    return None
