"""What a step costs in requests, beside its items: marks of what is whole, and its metadata where items change."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.items import STEP_METADATA
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.request_tally import Tally

LOCK_BYTES: Final = 150
"""What a lock holds, and with it each mark, which is its copy."""


def add_step(tally: Tally, prepared: Prepared, target: Path) -> None:
    """The marks that say in the end what is whole, and the step's metadata where an item comes or goes."""
    marks = _count_marks(prepared, target)
    tally.copy(marks, marks * LOCK_BYTES)
    step = prepared.checkpoint.location.folder_of_items
    if step is None or not filesystem.is_file(step / STEP_METADATA):
        return
    goes = prepared.left_out or len(prepared.kept_plans) < len(prepared.plans)
    if goes or prepared.draft.items.made:
        tally.write(1, filesystem.size(step / STEP_METADATA), objects=0)


def _count_marks(prepared: Prepared, target: Path) -> int:
    """How many: the result's own, those that come along, and of each item of a step."""
    location = prepared.checkpoint.location
    step = location.step_directory
    if step is None or not filesystem.is_folder(step):
        return 0
    found = {path for path, entry in files_below(step) if entry.name == COMMIT_MARK}
    if location.folder_of_items is not None:
        trees = {name: item.name for name, item in location.items.items()}
        made = (
            prepared.draft.items.made
        )  # the small files of each are those of the one that it is like
        marked = [
            n for n, like in made.items() if f"{trees.get(like, like)}/{COMMIT_MARK}" in found
        ]
        found |= {f"{name}/{COMMIT_MARK}" for name in marked}
        dropped = prepared.plans.keys() - prepared.kept_plans
        gone = {trees.get(name, name) for name in (*dropped, *prepared.left_out)}
        found -= {f"{name}/{COMMIT_MARK}" for name in gone}
        if filesystem.needs_commit_mark(target):
            items = {trees.get(name, name) for name in prepared.kept_plans}
            items |= {item.name for item in location.other_items.values()} - gone
            found |= {f"{name}/{COMMIT_MARK}" for name in items}
    return len(found | {COMMIT_MARK})
