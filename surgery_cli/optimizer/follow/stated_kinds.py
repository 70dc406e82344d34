"""For which states a factory that the user named for the whole tree was taken at its word."""

from __future__ import annotations

from typing import Final

from surgery_cli.draft.recipe import Draft
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import FieldName
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

_FOLLOWING: Final = frozenset({"transform", "reset", "warm", "donor"})
"""The policies under which it matters what a slot is."""


def stated_kind_notes(draft: Draft) -> list[Note]:
    """A note for every such factory: nobody should miss that it was meant for one state and used for several."""
    states: dict[str, dict[LeafPath, None]] = {}
    for slot in draft.slots.values():
        is_stated = slot.said and slot.known_by == "word" and slot.relation != "hole"
        if is_stated and draft.leaves[slot.path].policy in _FOLLOWING:
            states.setdefault(slot.said, {})[slot.state] = None
    notes: list[Note] = []
    for name, nodes in states.items():
        kind = Consequence if len(nodes) > 1 else Remark
        notes.append(
            kind(
                DocsPage.OPTIMIZERS,
                FieldName("optimizer_kind", name),
                f" is used for {quoted(nodes)}",
            )
        )
    return notes
