"""What is said of a source's own record, where that does not tell of what stands there."""

from __future__ import annotations

from surgery_cli.proof.on_record import lost_trees
from surgery_cli.proof.own_record import foreign_record
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def lost_item_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """A note for every item that is on record of the step, and not there: nobody misses it in the result."""
    said = "the item '{}' is on record of '{}', and not there: the result is without it"
    return [
        Consequence(DocsPage.CHECKED_BY_VERIFY, said.format(name, checkpoint.address))
        for name in lost_trees(checkpoint)
    ]


def foreign_record_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """A note of a record that is another's, and goes into the history of a result all the same.

    Raises:
        CheckpointError: the record is damaged.
    """
    said = foreign_record(checkpoint)
    more = "; it goes into the history of the result all the same"
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, said + more)] if said else []
