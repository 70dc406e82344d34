"""What a preview says of a source's own record, where that does not tell of what stands there."""

from __future__ import annotations

from surgery_cli.proof.on_record import lost_trees, read_record
from surgery_cli.proof.own_record import not_of_record
from surgery_cli.proof.record_places import record_path
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def record_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """Notes of items that are on record and not there, which nobody misses in the result, and of another's record.

    Raises:
        CheckpointError: the record is damaged.
    """
    said = [
        f"the item '{name}' is on record of '{checkpoint.address}', and not there: the result is without it"
        for name in lost_trees(checkpoint)
    ]
    record = read_record(checkpoint)
    if record is not None and (why := not_of_record(checkpoint, record)):
        place = record_path(checkpoint)
        said.append(
            f"'{place}' does not tell of what stands here, and goes into the history of the result: {why}"
        )
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, one) for one in said]
