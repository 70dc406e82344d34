"""Log: what was done to a checkpoint, along the chain of records that came with it."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec import UNSET

from surgery_cli import reports
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning.recorded_plans import holds_edits
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.own_record import not_of_record
from surgery_cli.proof.record_places import record_path, trees_of_step
from surgery_cli.proof.surgery_json import Record, misfit
from surgery_cli.salvage.opening import with_rescue
from surgery_cli.store.filesystem.listing import PassingOver, reading
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.held_history import sealed_otherwise


def log(argument: str, *, step: int | None = None, item: str | None = None) -> reports.History:
    """What is on record of the step or flat checkpoint that ``argument`` names; no tensor is read.

    A record holds those of the runs before it, so nothing but the checkpoint itself is asked.

    Raises:
        CheckpointError: it cannot be read, or its record is not what was written.
    """
    with reading(path_at(argument)):
        try:
            checkpoint = open_checkpoint(argument, step=step, item=item)
        except CheckpointError as error:
            raise with_rescue(error, path_at(argument)) from None
        record = read_record(checkpoint)
        return reports.History(
            checkpoint=str(checkpoint.location.root),
            address=checkpoint.address_of(item),
            chosen=checkpoint.location.chosen,
            assumptions=assumed_steps(checkpoint),
            record=str(record_path(checkpoint)),
            entries=[] if record is None else _entries(checkpoint, record),
        )


def recorded_plan(history: reports.History, number: int) -> dict[str, Any]:
    """The plan of the run with that number, for `apply`.

    Raises:
        PlanError: there is no such run, or it had no plan.
    """
    found = {entry.number: entry for entry in history.entries}
    with_plans = [n for n, entry in sorted(found.items()) if holds_edits(entry.plan)]
    if number in with_plans:
        entry = found[number]
        return entry.plan if len(entry.items) != 1 else {"of_item": entry.items[0], **entry.plan}
    of = f"run {number} is a {found[number].kind}" if number in found else ""
    raise PlanError(
        f"no plan is on record as run {number}",
        why=of or f"'{history.checkpoint}' has {len(found)} on record",
        fix=f"those with plans: {', '.join(map(str, with_plans))}" if with_plans else "",
    )


class _Past(msgspec.Struct):
    """What is asked of an earlier record, whichever version of the program wrote it."""

    written: str = ""
    surgery: str = ""
    source: str = ""
    address: str = ""
    source_fingerprint: str = ""
    edited_trees: list[str] = []
    donors: dict[str, str] = {}
    plan: dict[str, Any] = {}
    draft: str = ""
    leaves: list[Any] = []
    removed: list[Any] = []
    verified: dict[str, Any] = {}
    rescued: dict[str, Any] = {}
    sealed: dict[str, Any] | None = None
    sealed_anew: str = ""
    versions: dict[str, str] = {}

    @property
    def kind(self) -> str:
        if self.sealed_anew:
            return "seal anew"
        if self.rescued:
            return "rescue"
        if holds_edits(self.plan):
            return "edit"
        return "copy" if self.draft else "seal"


def _entries(checkpoint: Checkpoint, record: Record) -> list[reports.HistoryEntry]:
    last = msgspec.to_builtins(record)
    try:
        pasts = [msgspec.convert(entry, _Past) for entry in [*record.history, last]]
    except msgspec.ValidationError as error:
        raise misfit(record_path(checkpoint), error) from None
    trees, last_edited = {*trees_of_step(checkpoint)}, record.edited_trees or []
    run = pasts[-1]
    came = _as_they_came(pasts)
    entries = [_entry(number, past, trees) for number, past in enumerate(came, 1)]
    is_undoable = record.inverse is not UNSET and not trees & {*last_edited} - {*checkpoint.items}
    not_here = ""
    with PassingOver(
        CheckpointError
    ):  # of leaves that cannot be read the record is all that there is
        not_here = not_of_record(checkpoint, record)
        is_undoable &= not sealed_otherwise(checkpoint, record)
    if len(last_edited) == 1 and len(trees) > 1:
        is_undoable &= last_edited[0] in trees  # the one item is still there
    at = next(n for n, past in enumerate(came) if past is run)
    entries[at] = msgspec.structs.replace(
        entries[at], undoable=is_undoable and not not_here, not_here=not_here
    )
    return entries[::-1]


def _as_they_came(pasts: Sequence[_Past]) -> list[_Past]:
    """A seal anew, which stands in the history of the very record that it sealed, after that: it was later."""
    found, seals = list[_Past](), list[_Past]()
    for past in pasts:
        if past.sealed_anew:
            seals.append(past)
            continue
        later = [one for one in seals if one.sealed_anew >= past.written]
        found += [one for one in seals if one not in later] + [past, *later]
        seals = []
    return found


def _entry(number: int, past: _Past, trees: AbstractSet[str]) -> reports.HistoryEntry:
    sealed = (past.sealed or {}).get("written", "")
    return reports.HistoryEntry(
        number=number,
        kind=past.kind,
        written=past.sealed_anew or past.written,
        surgery=past.surgery,
        source=past.source,
        address=past.address,
        source_fingerprint=past.source_fingerprint,
        items=past.edited_trees if trees - {*past.edited_trees} else [],
        donors=past.donors,
        plan=past.plan,
        draft=past.draft,
        written_leaves=len(past.leaves),
        removed_leaves=len(past.removed),
        read_back=past.verified.get("read_back", 0),
        rescued_leaves=len(past.rescued),
        sealed=sealed,
        versions=past.versions,
    )
