"""In which condition a thing in a run directory is, from metadata alone, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import msgspec

from surgery_cli.errors import (
    CheckpointError,
    LimitError,
    Problem,
    SurgeryError,
    UnseenError,
)
from surgery_cli.examination.footprint import NOTHING_SEEN, Footprint
from surgery_cli.examination.places import Kind, Place, inside
from surgery_cli.examination.rescue_advice import NOTHING_WHOLE, beside, new_place, with_rescue
from surgery_cli.examination.states import Condition, State
from surgery_cli.proof.damaged_text import json_object
from surgery_cli.proof.file_marks import another_or_damaged
from surgery_cli.proof.metadata_files import handlers_of, metadata_faults, restore_notes
from surgery_cli.proof.on_record import lost_trees
from surgery_cli.proof.own_record import foreign_record
from surgery_cli.proof.sealed_files import seen_since_recorded, seen_since_sealed
from surgery_cli.proof.step_metadata_file import lacks_step_metadata
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import claim_of, is_committed, lock_around, lock_of
from surgery_cli.store.filesystem.listing import Listing, PassingOver, unreadable
from surgery_cli.store.filesystem.processes import State as RunState
from surgery_cli.store.locate.being_written import locked_in
from surgery_cli.store.locate.items import STEP_METADATA, handler_kind, step_items
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.write.half_replaced import half_replaced, mixture_around
from surgery_cli.store.write.strategy import WORTHWHILE_DEAD_BYTES
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import counted


def condition(place: Place, seen: Footprint) -> Condition:
    """The condition of anything but what surgery has left, which ``leftovers`` tells."""
    match place.kind:
        case Kind.CHECKPOINT:
            return _checkpoint(place, seen)
        case Kind.SAVE:
            return _save(place, seen)
        case Kind.FILE:
            return _unnamed_file(place, seen)
        case _:
            return _other(place, seen)


def _other(place: Place, seen: Footprint) -> Condition:
    """What is nothing of this run; what stands in it is of others, or what a manager keeps to be deleted."""
    of_others = inside(place.path).items()
    why, todo = (
        [f"{counted(n, f'{what} stands', f'{what}s stand')} in it" for what, n in of_others],
        "",
    )
    if filesystem.is_link(place.path) and not filesystem.exists(place.path):
        why = ["a link that leads nowhere"]
    elif why:
        todo = f"`surgery doctor {quote(str(place.path))}` looks at them"
    return Condition(place=place, state=State.APART, seen=seen, why=why, todo=todo)


def _checkpoint(place: Place, seen: Footprint) -> Condition:
    """The condition of what has its name; what is not whole is looked at as a rescue does it."""
    if not seen.files and filesystem.is_folder(place.path):
        return Condition(
            place=place,
            state=State.DAMAGED,
            seen=seen,
            why=["it is empty, and Orbax takes it for a step by its name"],
            todo="copy the step again from where it is whole, or remove the empty folder",
        )
    try:
        found = _opened(place, seen)
    except (UnseenError, LimitError) as error:
        return _unreadable(place, seen, error)
    except SurgeryError as error:
        first = error.problems[0]
        why = f"{first.what}: {first.why}" if first.why else first.what
        found = Condition(place=place, state=State.DAMAGED, seen=seen, why=[why])
    if found.state is not State.DAMAGED or found.has_whole_trees:
        return found
    return with_rescue(found)


def unreadable_condition(
    place: Place, error: PermissionError, seen: Footprint = NOTHING_SEEN
) -> Condition:
    """The condition of what the system does not let this user look into."""
    refused = Path(os.fsdecode(error.filename or place.path))
    return _unreadable(place, seen, unreadable(refused, error))


def _unreadable(place: Place, seen: Footprint, error: CheckpointError) -> Condition:
    problem = error.problems[0]
    why = f"{problem.what}: {problem.why}" if problem.why else problem.what
    return Condition(place=place, state=State.UNREADABLE, seen=seen, why=[why], todo=problem.fix)


def _opened(place: Place, seen: Footprint) -> Condition:
    """The condition of a checkpoint as far as it opens.

    Raises:
        SurgeryError: it does not.
    """
    lost, is_lacking = [], False
    if filesystem.is_folder(place.path):
        listing = Listing.of(place.path)
        if not is_committed(place.path, listing.files):
            return _uncommitted(place, seen)
        for new in locked_in(place.path):
            found = Condition(place=place, state=State.UNFINISHED, seen=seen)
            mixture = half_replaced(new)
            return (
                _of_run(found, lock_of(new)) if mixture is None else _half_replaced(found, mixture)
            )
        items = step_items(listing)
        if items.others and not (items.pytrees or items.unfinished or items.absent):
            why = ["it holds no tree of leaves"]
            return Condition(place=place, state=State.APART, seen=seen, why=why, is_treeless=True)
        lost = [f"the item '{name}' was never finished" for name in items.unfinished]
        is_lacking = bool(items.absent or items.unfinished)
    checkpoint = open_checkpoint(str(place.path))
    leaves = len(checkpoint.tree)
    faults = metadata_faults(checkpoint)
    with PassingOver(CheckpointError):  # of a damaged record, which is said below
        lost += [
            f"the item '{name}' is on record, and not there" for name in lost_trees(checkpoint)
        ]
    is_lacking |= bool(lost)
    why = lost + [f"`{file}`: {fault}" for file, fault in faults]
    if checkpoint.inferred_items and not why:
        why.append("there is no `_METADATA`: arrays' names alone tell what the tree was")
    dead = checkpoint.dead_bytes
    todo = ""
    if not why and (changed := _changed(checkpoint, place, seen)) is not None:
        return changed
    if unlike := seen_since_sealed(checkpoint):
        why += unlike
        todo = f"`surgery verify {quote(str(place.path))}` says all that is not as it is on record"
    elif faults and not lost:
        todo = _todo_beside(checkpoint, [file for file, _ in faults])
    elif not why and dead > max(seen.bytes / 4, WORTHWHILE_DEAD_BYTES):
        todo = f"`surgery compact {quote(str(place.path))} {new_place(place.path)}` leaves out what is dead in it"
    state = State.DAMAGED if why else State.WHOLE
    why += restore_notes(checkpoint)
    with PassingOver(CheckpointError):  # another's record makes nothing of this less whole
        why += filter(None, [foreign_record(checkpoint)])
    return Condition(
        place=place,
        state=state,
        seen=seen,
        leaves=leaves,
        lost_items=is_lacking,
        has_whole_trees=bool(todo) and state is State.DAMAGED and not unlike,
        dead_bytes=dead,
        why=why,
        todo=todo,
    )


def _changed(checkpoint: Checkpoint, place: Place, seen: Footprint) -> Condition | None:
    """The condition of what opens, and is not as the record beside it says; None of others."""
    seen_so = ""
    with PassingOver(CheckpointError):  # a damaged record is damage
        seen_so = seen_since_recorded(checkpoint)
    if not seen_so:
        return None
    error = another_or_damaged(checkpoint, seen_so).problems[0]
    return Condition(
        place=place,
        state=State.CHANGED,
        seen=seen,
        leaves=len(checkpoint.tree),
        why=[f"{error.what}: {error.why}"],
        todo=error.fix,
    )


def _todo_beside(checkpoint: Checkpoint, files: Sequence[str]) -> str:
    """What to do about damage beside whole trees; '' where a tree has some, too."""
    location = checkpoint.location
    handlers, path, new = (
        handlers_of(checkpoint),
        quote(str(location.root)),
        new_place(location.root),
    )
    trees = {path.name for path in location.items.values()}
    trees |= {name for name, handler in handlers.items() if handler_kind(handler) != "other"}
    if location.folder_of_items is None and set(files) != {STEP_METADATA}:
        return ""
    lacking = list(dict.fromkeys(file.split("/", 1)[0] for file in files))
    if trees.intersection(lacking):
        return ""
    again = f"copy {quoted(lacking, 4, word='and')} again from where it is whole"
    if lacking == [STEP_METADATA]:
        if lacks_step_metadata(location.step_directory or location.root):
            return (
                f"every leaf is in its place: {again}; `surgery rescue {path} {new}` writes it anew"
            )
        if json_object((location.step_directory or location.root) / STEP_METADATA)[0] is None:
            return (
                f"every leaf is in its place: {again}; `surgery rescue {path} {new}` leaves it out"
            )
        return f"every leaf is in its place: {again}, or restore with arguments for each item"
    without = f"`surgery rescue {path} {new} --allow-partial` writes the leaves without"
    return f"every leaf is in its place: {again}; {without}"


def _uncommitted(place: Place, seen: Footprint) -> Condition:
    """Where nothing can be renamed: what lacks the mark that comes last."""
    found = Condition(place=place, state=State.UNFINISHED, of="Orbax", seen=seen)
    lock = lock_around(place.path)
    if (mixture := mixture_around(place.path)) is not None:
        return _half_replaced(found, mixture)
    if lock is not None:
        return _of_run(found, lock)
    why = "its mark `commit_success.txt`, which comes last, is not there"
    return with_rescue(msgspec.structs.replace(found, why=[why]), is_save=True)


def _half_replaced(found: Condition, mixture: Problem) -> Condition:
    why = [mixture.what, mixture.why]
    return msgspec.structs.replace(found, of="surgery", why=why, todo=mixture.fix)


def _of_run(found: Condition, lock: Path) -> Condition:
    """The same of what a run of ours has, or had: where that lives, nothing is wrong with it."""
    try:
        claim = claim_of(lock)
    except FileNotFoundError:
        why = ["a run of surgery has ended there just now"]
        return msgspec.structs.replace(
            found, state=State.WRITING, of="surgery", why=why, todo="look again"
        )
    state = State.WRITING if claim.state is RunState.LIVING else found.state
    why = [claim.what, claim.why]
    return msgspec.structs.replace(found, state=state, of="surgery", why=why, todo=claim.fix)


def without_tree(found: Condition) -> Condition:
    """The same of a step that should have had a tree."""
    return msgspec.structs.replace(
        found,
        state=State.DAMAGED,
        why=["it holds no tree of leaves, and other steps do"],
        todo=NOTHING_WHOLE + beside(found.place.path),
    )


def _save(place: Place, seen: Footprint) -> Condition:
    of = "Flax" if "_tmp" in place.path.name else "Orbax"
    if ".tmp-" in place.path.name:
        of = "T5X"
    why = ["it never got its name: the save was cut short, or still goes on"]
    found = Condition(place=place, state=State.UNFINISHED, of=of, seen=seen, why=why)
    return with_rescue(found, is_save=True)


def _unnamed_file(place: Place, seen: Footprint) -> Condition:
    ((of, _),) = seen.unnamed.values()
    why = ["a file that never got its name: the copy was cut short, or still goes on"]
    return Condition(
        place=place,
        state=State.LEFTOVER,
        of=of,
        seen=seen,
        why=why,
        todo="do the copy again, which takes its place; else it may go",
    )
