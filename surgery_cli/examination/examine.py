"""The conditions of all things in a run directory, looked at twice where somebody may be at work there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli.examination.condition import (
    condition,
    unreadable_condition,
    without_tree,
)
from surgery_cli.examination.footprint import footprint
from surgery_cli.examination.leftovers import leftover_condition
from surgery_cli.examination.places import Kind, Place, places_at
from surgery_cli.examination.rescue_advice import with_structure
from surgery_cli.examination.states import Condition, State
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.names import unfinished_name
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import duration_text

WATCHED_SECONDS: Final = 1.5
"""A save that goes on writes something in this time, mostly; that it does not proves nothing."""

_AT_ONCE_IN_BUCKETS: Final = 8
_DOUBTFUL: Final = frozenset({State.UNFINISHED, State.DAMAGED, State.LEFTOVER})


def examine(
    path: Path, settled_seconds: float, looked_at: Callable[[Place], None] = lambda _: None
) -> list[Condition]:
    """What stands at ``path``, and in which condition each thing is; nothing is changed there.

    What is not whole is looked at again after a moment, and called damaged only if nothing in it has changed for
    ``settled_seconds``. With 0 everything is taken as it stands. ``looked_at`` is told of each thing.

    Raises:
        CheckpointError: nothing of a checkpoint stands there, or it cannot be looked at.
    """
    counted: set[tuple[int, int]] = set()

    def look(place: Place) -> Condition | None:
        found = _look(place, counted)
        looked_at(place)
        return found

    places = places_at(path)
    at_once = 1 if filesystem.requests_at_once(path) == 1 else _AT_ONCE_IN_BUCKETS
    with Threads(at_once, thread_name_prefix="surgery-examine") as pool:
        first = _compared([found for found in pool.map(look, places) if found is not None])
    if not settled_seconds or not any(one.state in _DOUBTFUL for one in first):
        return first
    time.sleep(WATCHED_SECONDS)
    again = (_settled(one, settled_seconds) for one in first)
    return [one for one in again if one is not None]


def _look(place: Place, counted: set[tuple[int, int]]) -> Condition | None:
    """The condition of a thing; None if it is gone."""
    try:
        seen = footprint(place.path, counted)
    except PermissionError as error:
        return unreadable_condition(place, error)
    if seen is None:
        return None
    try:
        if place.kind in (Kind.STAGING, Kind.SET_ASIDE):
            return leftover_condition(place, seen)
        return condition(place, seen)
    except PermissionError as error:
        return unreadable_condition(place, error, seen)


def _compared(found: list[Condition]) -> list[Condition]:
    """The same, steps held against each other: one without a tree has lost it where others have one.

    What the tree of one was that has lost its structure, a whole one knows: the newest before it, else any.
    """
    if not any(one.leaves for one in found):
        return found
    found = _beside_steps(found)
    whole = [
        one.place
        for one in found
        if one.state is State.WHOLE and one.leaves and one.place.step is not None
    ]

    def compared(one: Condition) -> Condition:
        if one.is_treeless:
            return without_tree(one)
        if one.left is None or one.left.has_structure or not whole:
            return one
        run = [place for place in whole if place.is_of_run(one.place)]
        before = [place for place in run if one.place.step is None or place.is_before(one.place)]
        return with_structure(one, (before or run[:1])[-1].path) if run else one

    return list(map(compared, found))


def _beside_steps(found: list[Condition]) -> list[Condition]:
    """The same, saying of checkpoints beside steps which are no steps by their name, or share a number."""
    steps: dict[int, list[str]] = {}
    for one in found:
        if one.place.kind is Kind.CHECKPOINT and one.place.step is not None and one.seen.bytes:
            steps.setdefault(one.place.step, []).append(one.place.path.name)
    if not steps:
        return found

    def said(one: Condition) -> Condition:
        place = one.place
        if place.kind is not Kind.CHECKPOINT:
            return one
        if place.step is None:
            why = (
                "its name is no step's: neither a manager nor a command takes it for one of the run"
            )
            return msgspec.structs.replace(one, why=[*one.why, why])
        others = [name for name in steps.get(place.step, ()) if name != place.path.name]
        if not others or not one.seen.bytes:  # no command takes what is empty for that number
            return one
        why = f"{quoted(others, 4, word='and')} is step {place.step}, too: no command takes either by its number"
        return msgspec.structs.replace(one, why=[*one.why, why])

    return list(map(said, found))


def _settled(found: Condition, settled_seconds: float) -> Condition | None:
    """The same after a moment, in which somebody may have written to it, finished or removed it."""
    if found.state not in _DOUBTFUL:
        return found
    place = found.place
    now = footprint(place.path, set())
    if now is None:
        final = place.path.with_name(unfinished_name(place.path.name) or place.path.name)
        is_done = place.kind is Kind.SAVE and filesystem.exists(final)
        return _look(Place(final, Kind.CHECKPOINT, place.step), set()) if is_done else None
    if now.digest != found.seen.digest:
        why = "it changed while it was looked at: a job writes there, or removes it"
        return msgspec.structs.replace(
            found, state=State.WRITING, why=[why], todo="look again when that is over"
        )
    age = max(time.time() - now.changed_ns / 1e9, 0)
    if not now.changed_ns or age >= settled_seconds or found.of == "surgery":
        return found
    since = f"it changed {duration_text(age)} ago: a job may still be at work there"
    todo = (
        f"look again later (`--settled 0` judges it as it is); if no job is at work: {found.todo}"
    )
    state = State.UNSETTLED if found.state is State.DAMAGED else found.state
    return msgspec.structs.replace(found, state=state, why=[*found.why, since], todo=todo)
