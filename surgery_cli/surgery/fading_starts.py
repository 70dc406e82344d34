"""What is left of starts that fade: their decay was tried out, and the steps are read from the checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from surgery_cli.draft.slots import Slot
from surgery_cli.engine.reading import read_scalar
from surgery_cli.optimizer.detect.starts import after_steps, faded_unknown
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.record_parts import ChangedLeaf, Run
from surgery_cli.proof.records import checked
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage

_MEASURED_IN: Final = ("float32", "float64")


def with_counts(
    checkpoint: Checkpoint, found: OptimizerSurvey
) -> tuple[OptimizerSurvey, list[Remark], int]:
    """The survey with what is left of starts whose decay is known, notes that say it, and the bytes read."""
    fading = {
        path: slot
        for path, slot in found.slots.items()
        if slot.fading is not None and slot.start is None and slot.relation != "hole"
    }
    if not fading:
        return found, [], 0
    record = read_record(checkpoint)
    clocks = dict.fromkeys(slot.fading.clock for slot in fading.values() if slot.fading is not None)
    is_anew = record is not None and _changes_slots(
        runs_of(checkpoint, record), [str(clock) for clock in clocks]
    )
    counts = {} if is_anew else {clock: read_scalar(checked(checkpoint), clock) for clock in clocks}
    slots = {**found.slots}
    for path, slot in fading.items():
        slots[path] = _told(slot, checkpoint.tree[path].dtype, counts)
    kept = {slot.state for slot in slots.values() if not slot.is_settled}
    following = (slots[path] for path in fading if slots[path].state not in kept)
    notes = dict.fromkeys(filter(None, map(_note, following)))
    unsure = [u for u in found.unsure if not all(slots[path].is_settled for path in u.slots)]
    told = msgspec.structs.replace(found, slots=slots, unsure=unsure)
    return told, list(notes), sum(checkpoint.tree[clock].bytes for clock in counts)


def _told(slot: Slot, dtype: str, counts: dict[LeafPath, Any]) -> Slot:
    if slot.fading is None or slot.fading.clock not in counts:
        return faded_unknown(
            slot,
            "an earlier run on record gave slots other values, or a count",
        )
    steps = counts[slot.fading.clock]
    if dtype not in _MEASURED_IN:
        return faded_unknown(slot, f"{dtype} rounds too much for it to fade by one factor a step")
    if not isinstance(steps, int) or steps < 0:
        return faded_unknown(slot, f"'{slot.fading.clock}' is no count of steps")
    return after_steps(slot, steps, dtype)


def _note(slot: Slot) -> Remark | None:
    fading = slot.fading
    if fading is None or slot.faded is None or slot.start is None or slot.fresh is None:
        return None
    left = f"{slot.start:.4g}" if slot.start else "nothing"
    return Remark(
        DocsPage.TAKEN_FOR_GRANTED,
        f"'{slot.node}' starts at {slot.fresh:g}, of which {left} is left and follows no factor:"
        f" {fading.decay:.7g} of it stays with each of {slot.faded.steps} steps ('{fading.clock}', which was read)",
    )


def _changes_slots(runs: Sequence[Run], clocks: Collection[str]) -> bool:
    """True if a run on record gave slots values that do not follow from their own, or a clock another number."""
    donors = tuple(f"{name}:" for run in runs for name in run.donors)
    return any(
        leaf.path in clocks or (leaf.twin_of is not None and not _goes_on(leaf, donors))
        for run in runs
        for leaf in run.leaves
    )


def _goes_on(leaf: ChangedLeaf, donors: tuple[str, ...]) -> bool:
    if donors and str(leaf.from_).startswith(donors):
        return False
    return leaf.keeps_start or not leaf.operations
