"""Notes of slots that an edit made restart, or left: no longer said where a later edit names all of these slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from surgery_cli.draft.effect import Sets, Takes
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note, Remark

_Seen: TypeAlias = tuple[tuple[LeafPath, int], ...]
"""Slots, and how many edits each had seen when something was said of it."""


class SlotConsequence(Consequence):
    """A consequence for slots that are ``seen``."""

    __slots__ = ("seen",)
    seen: _Seen


class SlotRemark(Remark):
    """A remark about slots that are ``seen``."""

    __slots__ = ("seen",)
    seen: _Seen


def as_seen(slots: Iterable[LeafPath], *drafts: Mapping[LeafPath, Output]) -> _Seen:
    """What a note of ``slots`` is about, as they stand in the first of ``drafts`` that has them."""
    standing = ((path, next(d[path] for d in drafts if path in d)) for path in slots)
    return tuple((path, len(output.edits)) for path, output in standing)


def without_outdated(draft: Draft) -> Draft:
    """The draft without the notes of slots that are something else in the end."""
    left: tuple[Note, ...] = tuple(
        note
        for note in draft.notes
        if not (isinstance(note, SlotConsequence | SlotRemark) and _is_outdated(note, draft))
    )
    return draft if left == draft.notes else draft.replaced(notes=left)


def _is_outdated(note: SlotConsequence | SlotRemark, draft: Draft) -> bool:
    """True if later edits put something else in the place of every one of its slots."""
    seen = getattr(note, "seen", ())
    return bool(seen) and all(_is_overtaken(draft.leaves.get(path), n) for path, n in seen)


def _is_overtaken(output: Output | None, edits: int) -> bool:
    if output is None:  # moved by now, or gone
        return False
    if output.is_by_reference and not output.policy:  # stored values, which nobody edited since
        return edits > 0 or (output.home is not None and output.home.source != SOURCE)
    since = output.edits[edits:]
    return any(edit.is_named and isinstance(edit.effect, Sets | Takes) for edit in since)
