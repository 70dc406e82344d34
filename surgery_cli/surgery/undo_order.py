"""A plan that undoes a run on record which was not the last: what came after it stays, in part."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from msgspec import UNSET

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.planning import Plan
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.record_parts import Run
from surgery_cli.proof.undone_runs import is_undone_by, standing
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_RESHARD: Final = frozenset({"reshard"})


def undoes_everything(checkpoint: Checkpoint, plan: Plan) -> bool:
    """True if a plan undoes the one run on record that stands: the result is what was there before all of them."""
    runs = _standing_runs(checkpoint)
    return len(runs) == 1 and is_undone_by(runs[0], plan.document())


def undone_out_of_order(checkpoint: Checkpoint, plan: Plan) -> list[Consequence]:
    """A note where other runs on record came after the one that a plan undoes, and stand."""
    document, runs = plan.document(), _standing_runs(checkpoint)
    later = list(takewhile(lambda run: not is_undone_by(run, document), runs))
    names = dict.fromkeys(
        name
        for run in later
        for name in (
            *(edit["op"] for edit in run.plan.get("edits", ())),
            *_RESHARD & run.plan.keys(),
        )
    )
    if not names or len(later) == len(runs):  # nothing but files came otherwise
        return []
    came = listed([f"`{name}`" for name in names], 4, word="and")
    return [
        Consequence(
            DocsPage.UNDOING,
            f"this undoes a run after which there was another, with {came}: what that did to other leaves, the slots"
            " of the optimizer say, or to the layout stays; `surgery plan SRC --inverse` undoes the last run, which"
            " belongs first",
        )
    ]


def _standing_runs(checkpoint: Checkpoint) -> list[Run]:
    """The runs on record that no later one has undone, of the trees that are chosen; the latest first."""
    try:
        record = read_record(checkpoint)
    except UnseenError:
        raise
    except CheckpointError:  # which is said elsewhere
        return []
    if record is None or not record.draft:
        return []
    chosen = {*checkpoint.items}
    return [
        run
        for run in standing(runs_of(checkpoint, record))
        if run.edited_trees is UNSET or chosen.intersection(run.edited_trees)
    ]
