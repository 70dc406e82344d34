"""Where the script's optimizer is another than the one that made the state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from surgery_cli.script.findings import Slots
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def other_states(here: Slots, there: Slots) -> dict[LeafPath, tuple[str, str]]:
    """The states of two optimizers at one place, by the families of both; not those that only stand elsewhere."""
    old, new = _families(here), _families(there)
    return {
        state: (old[state], family)
        for state, family in new.items()
        if old.get(state, family) != family
        and family not in old.values()
        and old[state] not in new.values()
    }


def whole_states_of(states: Collection[LeafPath], slots: Slots) -> set[LeafPath]:
    """The whole optimizer states that some states are parts of."""
    return {slot.whole_state for slot in slots.values() if slot.state in states}


def moves_of_other_fields(
    moves: Mapping[LeafPath, LeafPath], here: Slots, there: Slots
) -> set[LeafPath]:
    """The nodes whose rename would make the slots of one field another's: a momentum squares of gradients."""
    found = set()
    for path, slot in here.items():
        for depth in range(len(path) + 1):
            old = LeafPath(path[:depth])
            other = there.get(moves[old] / path[depth:]) if old in moves else None
            if other is None or not slot.optimizer or not other.optimizer:
                continue
            if (slot.optimizer, slot.name) != (other.optimizer, other.name):
                found.add(old)
    return found


def said_of_others(here: Slots, there: Slots) -> list[Consequence]:
    """That the script's optimizer is another: trees made equal do not make a state its own."""
    for state, (old, new) in other_states(here, there).items():
        text = (
            f"the script's optimizer is another: by its fields '{state}' is {old} here and {new} there; what agrees "
            "in names may mean something else"
        )
        return [Consequence(DocsPage.OTHER_OPTIMIZER, text)]
    return []


def _families(slots: Slots) -> dict[LeafPath, str]:
    return {
        slot.state: slot.optimizer
        for slot in slots.values()
        if slot.in_optimizer and slot.optimizer
    }
