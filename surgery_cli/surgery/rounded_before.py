"""Settings of the optimizer that an earlier run rounded, and that go back to a wider dtype: what was lost stays so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.optimizer.follow.clocks import filled_with
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.record_parts import Run, entries_of
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.dtypes import FLOATS
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN: Final = 6


def rounded_before(checkpoint: Checkpoint, draft: Draft) -> list[Consequence]:
    """A note for settings that get a wider dtype, and were in one before an earlier run, as the record says.

    Raises:
        CheckpointError: the record cannot be read, or is damaged.
    """
    wider: dict[str, str] = {}
    for path in draft.changed:
        output = draft.leaves[path]
        if output.home is None or output.home.source != SOURCE or filled_with(output) is not None:
            continue
        if _is_finer(output.spec.dtype, checkpoint.tree[output.home.path].dtype):
            wider[str(output.home.path)] = str(path)
    settings = set(map(str, survey(checkpoint.tree).hyperparams)) if wider else set()
    record = read_record(checkpoint) if settings & wider.keys() else None
    if record is None:
        return []
    by_dtype: dict[str, list[str]] = {}
    narrowed = _narrowed(runs_of(checkpoint, record), settings & wider.keys())
    for name, dtype in sorted(narrowed.items()):
        by_dtype.setdefault(dtype, []).append(wider[name])
    return [
        Consequence(
            DocsPage.SETTINGS,
            f"an earlier run cast {quoted(names, _SHOWN)} to {dtype}, and a wider dtype does not bring back what"
            " rounding took: `set` them in the same plan to what your script gives, if it took any",
        )
        for dtype, names in by_dtype.items()
    ]


def _narrowed(runs: Sequence[Run], leaves: Collection[str]) -> dict[str, str]:
    """Of leaves that an earlier run put into a narrower dtype, by printed path, that dtype; latest runs first."""
    found: dict[str, str] = {}
    told: set[str] = set()
    for leaf, entry in entries_of(runs, leaves):
        if leaf in told:
            continue
        before, after = (str(one).partition("[")[0] for one in (entry.before, entry.after))
        if "set" in entry.operations:
            told.add(leaf)
        elif _is_finer(before, after):
            told.add(leaf)
            found[leaf] = after
    return found


def _is_finer(one: str, other: str) -> bool:
    """True for dtypes of which the first rounds less."""
    return one in FLOATS and other in FLOATS and FLOATS[one].rounding < FLOATS[other].rounding
