"""Which run on record is the last of what was chosen."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from surgery_cli.errors import PlanError, UndoError
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.own_record import check_own_record
from surgery_cli.proof.record_places import record_path
from surgery_cli.proof.surgery_json import Record, misfit
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.lists import quoted

MOST_NAMED: Final = 12


def last_run(checkpoint: Checkpoint) -> Record:
    """The record of the run that can be undone.

    Raises:
        PlanError: there is none.
        UndoError: it is one that no plan undoes.
        CheckpointError: it cannot be read.
    """
    found = read_record(checkpoint)
    record = None if found is None else _last_about(checkpoint, found)
    if found is not None and record is None and (edited := found.edited_trees):
        raise UndoError(
            f"no run on record was about {quoted(checkpoint.items, MOST_NAMED, word='or')}",
            why=f"the last was about {quoted(edited, MOST_NAMED)}",
            fix="`surgery log` shows all",
        )
    if record is None or not record.draft:  # of a seal, or a rescue
        place = record_path(checkpoint)
        if found is None:
            why = f"`surgery` did not write it: '{place}' is not there"
        elif (record or found).rescued:
            why = f"the last on record is a rescue, which no plan undoes: '{place}'"
        else:
            why = f"it was sealed, and no edit of it is on record: '{place}'"
        raise PlanError(
            f"'{checkpoint.location.root}' has no record of an edit to undo",
            why=why,
            fix="name a checkpoint that an edit has written",
        )
    if record.plan.get("output"):
        raise UndoError(
            f"'{checkpoint.location.root}' is an export, which no plan makes a checkpoint again",
            why=f"of '{record.source}' it has the leaves alone, as {checkpoint.layout}",
            fix="use that checkpoint",
        )
    check_own_record(checkpoint, record)
    return record


def _last_about(checkpoint: Checkpoint, record: Record) -> Record | None:
    """The record of the latest run that was about a tree which was chosen: later ones have left that alone."""
    chosen = {*checkpoint.items}
    if record.edited_trees is UNSET or chosen & {*record.edited_trees}:
        return record
    for entry in reversed(record.history):
        trees = entry.get("edited_trees")
        if "sealed_anew" not in entry and (trees is None or chosen & {*trees}):
            try:
                return msgspec.convert(entry, Record)
            except msgspec.ValidationError as error:
                raise misfit(record_path(checkpoint), error) from None
    return None
