"""The plan that undoes the last run, from its record, proved on the checkpoint as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli import reports
from surgery_cli.errors import PlanError, Problem, SurgeryError, UndoError, UnseenError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning import plan_from_document
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.record_places import has_several_trees, record_path, recorded_place
from surgery_cli.proof.surgery_json import Record, misfit
from surgery_cli.resolution.from_source import Ends, Side
from surgery_cli.resolution.inverse import ORIGIN, needs_source
from surgery_cli.salvage.opening import opened
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.write.step_plan import draft_items
from surgery_cli.surgery.held_history import check_undone
from surgery_cli.surgery.inverse_proof import differences, is_in_order
from surgery_cli.surgery.last_run import MOST_NAMED, last_run
from surgery_cli.surgery.leaf_names import document_names, former_names
from surgery_cli.surgery.preparation import prepare
from surgery_cli.surgery.sides import lacking_beside
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.series import folded


def inverse(source: str, *, options: Options = Options()) -> reports.InversePlan:
    """The plan that makes of a result what it was made of, bit for bit.

    Raises:
        UndoError: something cannot be undone; it is named.
        CheckpointError: the checkpoint cannot be read, or carries no record of a run.
    """
    chosen = Options(step=options.step, item=options.item)  # what else is said here, `apply` is not
    with reading(path_at(source)):
        checkpoint = opened(source, step=chosen.step, item=chosen.item)
        record = last_run(checkpoint)
        check_undone(checkpoint, options.memory_bytes)
        origin = _origin_of(record, checkpoint)
        _check_item(source, checkpoint, record, origin)
        _check_there(record, origin)
        document = _for(record, _proved(source, checkpoint, record, origin, chosen))
    if len(edited := _edited_trees(record, origin)) == 1 and has_several_trees(checkpoint):
        document = {"of_item": edited[0], **document}
    return reports.InversePlan(
        checkpoint=str(checkpoint.location.root),
        source=record.source,
        plan=document,
        assumptions=assumed_steps(checkpoint),
        from_source=sum(map(needs_source, document["edits"])),
        not_brought_back=_not_brought_back(checkpoint, origin, document),
    )


def _not_brought_back(
    checkpoint: Checkpoint, origin: _Origin, document: dict[str, Any]
) -> list[str]:
    """Items of the source that are no trees, which nothing takes back once a run has left them out."""
    if origin.checkpoint is None:
        return []
    inserted = {edit.get("as") for edit in document["edits"] if edit["op"] == "insert-item"}
    source = origin.checkpoint
    if source.location.shape == "item" and source.location.step_directory is not None:
        source = open_checkpoint(str(source.location.step_directory))
    if checkpoint.location.shape == "item":
        return []
    return [name for name in lacking_beside(source, checkpoint) if name not in inserted]


def _for(record: Record, document: dict[str, Any]) -> dict[str, Any]:
    """The plan with what the source must be when it is applied, which may be much later."""
    sources = document.get("sources", {})
    if ORIGIN not in sources:
        return document
    wanted = {ORIGIN: record.source_fingerprint}
    return {"sources": sources, "fingerprints": wanted, **document}


class _UndoingEdit(msgspec.Struct):
    at: str | list[str] = ""


class _Undoing(msgspec.Struct):
    """What is asked of the plan that undoes a run, before it is read as one."""

    edits: list[_UndoingEdit]
    sources: dict[str, str] = {}


class _Origin(NamedTuple):
    """The checkpoint that was edited, if it is there as it was then; else why it is not, and what helps."""

    address: str
    checkpoint: Checkpoint | None
    why: str = ""
    fix: str = "put it back where it was"


def _origin_of(record: Record, result: Checkpoint) -> _Origin:
    """Raises a CheckpointError where the record of a result says how to undo it, and does not."""
    address = ""
    try:
        if not isinstance(record.inverse, UnsetType):
            address = msgspec.convert(record.inverse, _Undoing).sources.get("source", "")
    except msgspec.ValidationError as error:
        raise misfit(record_path(result), error) from None
    address = address or (record.source if record.address is UNSET else record.address)
    try:
        found = open_checkpoint(address)
    except UnseenError:
        raise
    except SurgeryError as error:
        return _Origin(address, None, error.problems[0].what)
    if found.fingerprint != record.source_fingerprint:
        if found.places & result.places:
            fix = f"it was moved: put it where it was, and '{result.address}' elsewhere"
            return _Origin(address, None, "what stands there now is this result", fix)
        if found.location.shape != "file":
            return _Origin(address, None, "it has changed since")
        why = "it has changed since, or was written anew: a file is known by its time, too"
        fix = "put it back with its time of writing (`cp -p` keeps that)"
        return _Origin(address, None, why, fix)
    return _Origin(address, found)


def _check_item(source: str, result: Checkpoint, record: Record, origin: _Origin) -> None:
    """See that the item is chosen that the run was about, if it was about one: paths in its plan name none."""
    edited, chosen = _edited_trees(record, origin), list(result.items)
    if not has_several_trees(result) or not edited or set(edited) & set(chosen) == set(chosen):
        return
    if len(chosen) > 1 and len(edited) == 1:
        raise PlanError(
            f"the run that wrote '{source}' edited the item '{edited[0]}' alone",
            why="paths in its plan, and in the one that undoes it, have no item in front",
            fix=f"choose it here and where the plan is applied: `--item {edited[0]}`",
        )
    if len(chosen) == 1:
        raise UndoError(
            f"the last run on record did not edit the item '{chosen[0]}', and no other can be undone",
            why=f"it edited {quoted(edited, MOST_NAMED)}",
            fix="undo that one first; `surgery log` shows all",
        )


def _edited_trees(record: Record, origin: _Origin) -> list[str]:
    """The trees that a run was about; none where nothing says so."""
    if record.edited_trees is not UNSET:
        return record.edited_trees
    location = None if origin.checkpoint is None else origin.checkpoint.location
    return [location.root.name] if location is not None and location.shape == "item" else []


def _check_there(record: Record, origin: _Origin) -> None:
    """See that the source is there if something is needed of it.

    Raises:
        UndoError: it is not; everything is named that is needed of it.
    """
    if origin.checkpoint is not None:
        return
    if isinstance(record.inverse, UnsetType):
        raise UndoError(
            "the record does not say how to undo the run",
            why=f"surgery {record.surgery} wrote it, or the run was one of several hosts; only '{origin.address}' has"
            f" what stood there, and {origin.why}",
            fix=origin.fix,
        )
    if record.plan.get("reshard"):
        raise _lost("the change of chunks and shardings", origin)
    needed = [edit.get("at", "") for edit in record.inverse["edits"] if needs_source(edit)]
    if needed:
        texts = [text for at in needed for text in ([at] if isinstance(at, str) else at)]
        raise _lost(quoted(folded(texts), MOST_NAMED), origin)


def _lost(what: str, origin: _Origin) -> UndoError:
    """The error that says what cannot be undone without the source."""
    return UndoError(
        f"{what} cannot be undone",
        why=f"only '{origin.address}' has what stood there, and {origin.why}",
        fix=f"{origin.fix}, then run the command again",
    )


def _proved(
    source: str, checkpoint: Checkpoint, record: Record, origin: _Origin, options: Options
) -> dict[str, Any]:
    """The first plan that, tried out on metadata, makes the tree that there was.

    Raises:
        UndoError: none does.
    """
    problems: list[Problem] = []
    found: dict[str, Any] | None = None
    for edits in _plans(checkpoint, record, origin):
        document = _laid_out_before(edits, record, origin)
        try:
            draft = prepare(source, plan_from_document(document), options).draft
        except PlanError as error:
            problems = problems or list(error.problems)
            continue
        wrong = differences(draft, origin.checkpoint, record)
        if not wrong and is_in_order(draft, origin.checkpoint):
            return document
        found = found if wrong or found else document
        problems = problems or [Problem(f"{quoted(wrong, 6)} would not be what it was")]
    if found is not None:
        return found
    if origin.checkpoint is None:
        raise _lost(f"the run that wrote '{source}'", origin)
    edited = record.edited_trees or []
    if len(edited) > 1 and not checkpoint.location.prefix_items:
        raise UndoError(
            f"the run that wrote '{source}' edited {quoted(edited, MOST_NAMED, word='and')} together",
            why="what it did to one of them alone is not on record",
            fix=_way_to_undo_together(checkpoint, edited),
        )
    raise UndoError(
        f"no plan makes '{origin.address}' of '{source}'",
        why=problems[0].what + (f": {problems[0].why}" if problems[0].why else ""),
        fix=f"go on from '{origin.address}', which is as it was",
    )


def _way_to_undo_together(checkpoint: Checkpoint, edited: Sequence[str]) -> str:
    """How to undo a run that was about several items, of which a later one may have been about some."""
    step = quote(str(recorded_place(checkpoint)))
    last = read_record(checkpoint, of_all=True)
    later = [] if last is None else last.edited_trees or []
    all_of_it = f"all of it: `surgery plan {step} --inverse`, without an item"
    if {*later} >= {*edited}:
        return f"undo {all_of_it}"
    return f"undo first what a later run did to {quoted(later, MOST_NAMED, word='and')}; then {all_of_it}"


def _laid_out_before(edits: dict[str, Any], record: Record, origin: _Origin) -> dict[str, Any]:
    """The plan that takes the layout of the source as well, where the run gave its result another one."""
    if not record.plan.get("reshard"):
        return edits
    sources = {**edits.get("sources", {}), ORIGIN: origin.address}
    return {**edits, "sources": sources, "reshard": {"like": ORIGIN}}


def _plans(checkpoint: Checkpoint, record: Record, origin: _Origin) -> Iterator[dict[str, Any]]:
    """What may undo the run: the edits on record first, then what takes more from the source."""
    if not isinstance(record.inverse, UnsetType):
        yield dict(record.inverse)
    if origin.checkpoint is not None:
        yield from _ends(checkpoint, record, origin.checkpoint).plans(origin.address)


def _ends(result: Checkpoint, record: Record, origin: Checkpoint) -> Ends:
    """The two trees, with the leaves of the result that the record says to be leaves of the source as they are."""
    here, there = _side(result), _side(origin)
    said = {leaf.path: leaf for leaf in record.leaves}
    sources = {text: path for path, text in former_names(there.tree.texts).items()}
    sources |= {text: path for path, text in document_names(there.tree.texts).items()}
    former = former_names(here.tree.texts)
    own = here.items[0] if here.items and not here.is_prefixed else ""
    fronts = ("", f"{own}/") if own else ("",)
    kept: dict[LeafPath, LeafPath] = {}
    for path, text in document_names(here.tree.texts).items():
        # the record has the name of the item in front, where the run had several
        ways = [front + name for name in (text, former[path]) for front in fronts]
        leaf = next((said[way] for way in ways if way in said), None)
        if leaf is None:
            home = _at_home(path, here, there)
        else:
            is_same = leaf.moved and not leaf.operations and leaf.digest is None
            home = sources.get(leaf.from_ or "") if is_same else None
        spec = None if home is None else there.tree.get(home)
        if home is not None and spec is not None and spec.agrees_with(here.tree[path]):
            kept[path] = home
    return Ends.of(here, there, kept)


def _side(checkpoint: Checkpoint) -> Side:
    items = draft_items(checkpoint)
    return Side(checkpoint.tree, items.names, items.is_prefixed)


def _at_home(path: LeafPath, here: Side, there: Side) -> LeafPath | None:
    """Where the source has what stands in the same item at the same place."""
    if not (here.items and there.items):
        return path
    full = path if here.is_prefixed else LeafPath((here.items[0], *path))
    if there.is_prefixed:
        return full
    return LeafPath(full[1:]) if full[0] == there.items[0] else None
