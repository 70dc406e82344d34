"""The plan that undoes the last run, from its record, proved on the checkpoint as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UnsetType

from surgery_cli import reports
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem, SurgeryError, UndoError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.plan import plan_from_document
from surgery_cli.proof.records import read_record, record_path
from surgery_cli.proof.surgery_json import Record
from surgery_cli.resolution.inverse import needs_source, tree_digest
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.preparation import prepare
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.lists import quoted


def inverse(source: str, *, options: Options = Options()) -> reports.InversePlan:
    """The plan that makes of a result what it was made of, bit for bit.

    Raises:
        UndoError: something cannot be undone; it is named.
        CheckpointError: the checkpoint cannot be read, or carries no record of a run.
    """
    with reading(path_at(source)):
        checkpoint = open_checkpoint(source, step=options.step, item=options.item)
        record = _record_of(checkpoint)
        document = dict(_inverse_in(record, checkpoint))
        original = _original(record, document)
        _check_proved(source, document, options, original or record.original)
    return reports.InversePlan(
        checkpoint=str(checkpoint.location.root),
        source=record.source,
        plan=document,
        from_source=sum(map(needs_source, document["edits"])),
    )


def address_of(checkpoint: Checkpoint, item: str | None) -> str:
    """How a plan names what was opened, with the step and the item that were chosen."""
    location = checkpoint.location
    if item is not None and item in location.items:
        return str(location.items[item])
    is_root = location.shape == "root" and location.step is not None
    return f"{location.root}@{location.step}" if is_root else str(location.root)


def _record_of(checkpoint: Checkpoint) -> Record:
    record = read_record(checkpoint)
    if record is None or not record.plan:
        raise PlanError(
            f"'{checkpoint.location.root}' has no record of a run",
            why=f"`surgery` did not write it: '{record_path(checkpoint)}' "
            + ("says of none" if record else "is not there"),
            fix="name a checkpoint that an edit has written",
        )
    return record


def _inverse_in(record: Record, checkpoint: Checkpoint) -> Mapping[str, Any]:
    if isinstance(record.inverse, UnsetType):
        raise UndoError(
            f"the record of '{checkpoint.location.root}' does not say how to undo its run",
            why=f"surgery {record.surgery} wrote it, or the run was one of several hosts",
            fix=f"its source was '{record.source}'",
        )
    return record.inverse


def _original(record: Record, document: Mapping[str, Any]) -> TreeSpec | None:
    """The tree of the checkpoint that was edited, as it was then; None if it is gone and nothing is needed of it.

    Raises:
        UndoError: something is needed of it.
    """
    needed = [edit for edit in document["edits"] if needs_source(edit)]
    address = document.get("sources", {}).get("source", "")
    try:
        original = open_checkpoint(address or record.source)
        why = "" if original.fingerprint == record.source_fingerprint else "it has changed since"
    except SurgeryError as error:
        original, why = None, error.problems[0].what
    if not why:
        assert original is not None
        return original.tree
    if not needed:
        return None
    raise UndoError.of(
        Problem(
            f"{quoted(_texts(edit), 4)} cannot be undone",
            why=f"only '{address}' has what stood there, and {why}",
            fix="put it back where it was; all other edits can be undone without it",
        )
        for edit in needed
    )


def _texts(edit: Mapping[str, Any]) -> list[str]:
    at = edit["at"]
    return at if isinstance(at, list) else [at]


def _check_proved(
    source: str, document: dict[str, Any], options: Options, original: TreeSpec | str | UnsetType
) -> None:
    """Try the plan out on metadata: it must make the tree that there was.

    Raises:
        UndoError: it does not.
    """
    try:
        draft = prepare(source, plan_from_document(document), options).draft
    except PlanError as error:
        first = error.problems[0]
        raise UndoError(
            f"no plan undoes the run that wrote '{source}'",
            why=f"{first.what}" + (f": {first.why}" if first.why else ""),
            fix="go on from its source, which is as it was",
        ) from error
    if isinstance(original, UnsetType):
        return
    specs = {path: output.spec for path, output in draft.leaves.items()}
    if isinstance(original, str):
        wrong = [] if tree_digest(specs) == original else ["the tree"]
    else:
        wrong = _differences(draft, original)
    if wrong:
        raise UndoError(
            f"{quoted(wrong, 6)} cannot be undone",
            why="no edit that there is brings back the keys, or the type, that the source has there",
            fix="take these from the source by hand, or go on from it",
        )


def _differences(draft: Draft, original: TreeSpec) -> list[str]:
    """The leaves of either tree that the other has not, or has otherwise."""
    cut = 1 if draft.items.is_prefixed and not any(p in draft.leaves for p in original) else 0
    after = {LeafPath(path[cut:]): output.spec for path, output in draft.leaves.items()}
    paths = dict.fromkeys((*original, *after))
    return [
        str(path)
        for path in paths
        if path not in after or path not in original or not after[path].agrees_with(original[path])
    ]
