"""Which checkpoints may stand for a broken step: what is named, or of a run its steps before the broken one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import step_name, unfinished_name
from surgery_cli.store.locate.steps import Step, refuse_several_formats, steps_at
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed


def standing_for(text: str, place: BrokenPlace) -> Iterator[Checkpoint]:
    """The checkpoint that ``text`` names; of a run the steps that open whole and are older, the newest first.

    Raises:
        CheckpointError: (at the end, if nothing was given) there is none.
        PlanError: the steps are named in several formats, each a run of its own.
    """
    root = filesystem.real(path_at(address(text, refusal=CheckpointError)))
    steps = _finished(root)
    if not steps:
        yield open_checkpoint(text)
        return
    refuse_several_formats(root, steps)
    damaged = []
    for step in reversed(steps):
        if not _is_older(root, step, place):
            continue
        try:
            checkpoint = open_checkpoint(text, step=step.number)
            _ = checkpoint.tree
        except CheckpointError:
            damaged.append(str(step.number))
            continue
        yield checkpoint
    said = f": {listed(damaged, word='and')} cannot be opened" if damaged else ""
    raise CheckpointError(
        f"no step of '{text}' is whole and older than '{place.root.name}'",
        why=f"steps there: {listed([step.name for step in steps], 8)}{said}",
        fix="name another checkpoint",
    )


def is_run(text: str) -> bool:
    """True for what names a run, and no step of it."""
    return bool(_finished(filesystem.real(path_at(address(text, refusal=CheckpointError)))))


def _finished(root: Path) -> list[Step]:
    return [step for step in steps_at(root) if step.is_finished]


def path_there(other: Checkpoint, place: BrokenPlace, item: str, inner: LeafPath) -> LeafPath:
    """Where the other checkpoint has, or should have, a leaf of an item of the broken one.

    That is in the item of the same name. A single tree is under its own name in one and the whole tree in the other
    where a save was killed before anything said that what stands beside it is no tree.
    """
    path = place.path(item, inner)
    if item in other.items:
        return other.path_in(item, inner)
    is_only = len(place.items) == 1 and not other.location.prefix_items
    return inner if is_only and path not in other.tree else path


def _is_older(root: Path, step: Step, place: BrokenPlace) -> bool:
    """True for a step before the broken one; for all others, where its name says no number."""
    if place.root.is_relative_to(filesystem.real(root / step.name)):
        return False
    broken = number_of(place)
    return broken is None or step.number < broken


def number_of(place: BrokenPlace) -> int | None:
    """Which step the broken one is, by its name or, of an item, by that of the step around it."""
    names = (place.root.name, place.root.parent.name)
    numbers = [step_name(unfinished_name(name) or name) for name in names]
    return next((named.number for named in numbers if named is not None), None)
