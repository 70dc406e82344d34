"""Items that come along with a step unread, and that another step does not have."""

from __future__ import annotations

from surgery_cli.store.open.checkpoint import Checkpoint


def lacking_items(one: Checkpoint, other: Checkpoint) -> list[str]:
    """What the step of ``one`` has beside what was opened, and that of ``other`` has not; none where one is no step."""
    here, there = one.location, other.location
    if {here.shape, there.shape} - {"root", "step"}:
        return []
    return sorted(here.other_items.keys() - there.other_items.keys() - there.items.keys())
