"""A step that was added to its own run, asked for once more: the newest step is by then the one that was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from surgery_cli.draft.recipe import SOURCE
from surgery_cli.errors import CheckpointError, DestinationError, LimitError, UnseenError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.proof.on_record import record_at
from surgery_cli.store.filesystem.listing import reading, removal_of
from surgery_cli.store.filesystem.names import RECORD
from surgery_cli.store.locate.location import Location
from surgery_cli.store.locate.steps import Step
from surgery_cli.surgery.named_steps import name_step_read
from surgery_cli.words.invocation import the_same, typed


def read_before(
    location: Location, new: Path, steps: Sequence[Step], taken: DestinationError
) -> Path | None:
    """The step of the run that was read when the step ``new`` was made of its newest one; None if that is not so.

    Where nothing tells what was read, it is the newest but for ``new``, which this command would read without it.

    Raises:
        DestinationError: it is none that this command would read now: it is gone, or another has come since.
        CheckpointError: what is on record of it could not be looked at.
    """
    if location.shape != "root" or location.named_step is not UNSET:
        return None
    others = [step for step in steps if step.is_finished and step.name != new.name]
    name = _made_of(new)
    if name is None or name == new.name:
        return new.parent / others[-1].name if others else None
    problem, free = taken.problems[0], max(step.number for step in steps) + 1
    known = next((step for step in others if step.name == name), None)
    if known is None:
        raise DestinationError(
            problem.what,
            why=f"it was made of '{name}', which is no longer there: nothing tells what this command would make of it",
            fix=f"to edit another step, name it ('{new.parent}@N'), with a number that is free, e.g. {free}",
        )
    newest = others[-1]
    if newest.name == name:
        return new.parent / name
    name_step_read(location, new.parent, step=known.number)
    again = the_same() if typed() else f"the same call of '{new.parent}@{known.number}'"
    raise DestinationError(
        problem.what,
        why=f"it was made of step {known.number}, and the newest beside it is {newest.number} now",
        fix=f"{again} says whether it is what that makes; to edit step {newest.number}, take a number that is free,"
        f" e.g. {free}",
    )


def _made_of(new: Path) -> str | None:
    """The name of the step that a step is on record to be made of."""
    try:
        with reading(new):
            record = record_at(new / RECORD)
    except (UnseenError, LimitError):
        raise
    except CheckpointError:  # a damaged one is named by who holds the step against what is made
        return None
    if record is None or record.inputs is UNSET or SOURCE not in record.inputs:
        return None
    return path_at(record.inputs[SOURCE].place).name


def or_removed(new: Path, free: int, source: str) -> str:
    """What to do where a step is taken by what is to be made otherwise: ``source`` is what is to be read then."""
    return (
        f"take a number that is free, e.g. {free}, with '{source}' as what is read, or remove that step first:"
        f" `{removal_of(new)}`"
    )
