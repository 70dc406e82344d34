"""What can be known of a thing in a run directory."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from surgery_cli.examination.footprint import Footprint
from surgery_cli.examination.places import Place
from surgery_cli.salvage.glance import Glance


class State(StrEnum):
    """What is known of a thing."""

    WHOLE = "whole"
    WRITING = "writing"
    """Somebody is seen to write, or to remove it."""
    UNSETTLED = "unsettled"
    """It does not look whole, and somebody changed it a moment ago."""
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"
    CHANGED = "changed"
    """It reads, and is not as the record beside it says: damaged since, or something else was saved there."""
    LEFTOVER = "leftover"
    UNREADABLE = "unreadable"
    """The system does not let this user look at it, or a limit does not: whether it is whole cannot be told."""
    APART = "apart"
    """Nothing that a run needs: other files, and checkpoints without leaves."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one thing: ``why`` it is in that state, and what ``todo``.

    ``leaves`` are counted where it opens; ``left`` is what a rescue would find where it does not.
    """

    place: Place
    state: State
    of: str = ""
    """Who has left it, or writes it."""
    seen: Footprint
    leaves: int | None = None
    left: Glance | None = None
    lost_items: bool = False
    """Some of what a step should hold beside its trees of leaves is not there."""
    is_treeless: bool = False
    """It is whole as far as it says, and holds no tree of leaves."""
    has_whole_trees: bool = False
    """Nothing is wrong with its trees of leaves: what is damaged stands beside them."""
    dead_bytes: int = 0
    why: list[str] = []
    todo: str = ""
