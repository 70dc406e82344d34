"""Which leaves of the source are in a result no more."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.slots import Slot
from surgery_cli.tree.paths import LeafPath

Homes = tuple[LeafRef, ...]
"""The stored leaves that an output leaf continues, the first first."""


def removed_leaves(
    stands: Mapping[LeafPath, LeafPath],
    homes: Mapping[LeafPath, Homes],
    slots: Mapping[LeafPath, Slot],
) -> list[LeafPath]:
    """Source leaves from which no output leaf is made at the same path or elsewhere.

    ``stands``: where each stands if no edit moves it. The next element of a list, that moved up to its place, is none;
    nor is a slot that is its param anew.
    """
    used = {home.path for every in homes.values() for home in every if not home.source}

    def is_gone(place: LeafPath) -> bool:
        if place not in homes:
            return True
        here = homes[place][:1]
        return any(not home.source for home in here) and not _is_param(place, homes, slots)

    return [path for path, place in stands.items() if path not in used and is_gone(place)]


def _is_param(
    place: LeafPath, homes: Mapping[LeafPath, Homes], slots: Mapping[LeafPath, Slot]
) -> bool:
    """True for a slot that starts as a copy of its param, and is what that becomes."""
    slot = slots.get(place)
    if slot is None or not slot.is_params_like or slot.param not in homes:
        return False
    return homes[slot.param][:1] == homes[place][:1]
