"""`--resume` of a run that is over: the result stands, and nothing is left to be done, if it is what would be made."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET

from surgery_cli import reports
from surgery_cli.errors import DestinationError, SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.planning import Plan
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.result import open_result
from surgery_cli.proof.structure import compare
from surgery_cli.proof.surgery_json import Record
from surgery_cli.settings.declaration import for_record
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import AbovePlan
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below, is_tree
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.carried_files import beside_items, beside_values
from surgery_cli.store.write.commit_marks import is_whole
from surgery_cli.store.write.dead_in_buckets import dead_at, leftovers_at
from surgery_cli.surgery.file_versions import is_said_of
from surgery_cli.surgery.kept_inputs import (
    changed_inputs,
    how_changed,
    inputs_of,
    judged_by,
    labels_of,
)
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.previews import previewed
from surgery_cli.surgery.step_metrics import with_metrics_or_not
from surgery_cli.surgery.traffic import Traffic
from surgery_cli.surgery.unlike_plans import first_unlike
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage


def finished_before(
    target: Path,
    prepared: Prepared,
    plan: Plan,
    options: Options,
    taken: DestinationError | None = None,
) -> reports.Report | None:
    """With ``--resume``, the report where an earlier run has finished what this very command makes; else None.

    The record says so: of the same draft, so of the same sources, of the same rules and under the same settings; and
    what stands there has the structure of it. With `--force` that is not enough: values may be damaged, for which the
    result is replaced.

    Raises:
        DestinationError: it makes the same, but what was to be proved of it, or how it is laid out, was another; or it
            is ``taken``, and by something else.
    """
    done = _finished_before(target, prepared, plan, options)
    if done is None and taken is not None:
        raise taken
    return done


def _finished_before(
    target: Path, prepared: Prepared, plan: Plan, options: Options
) -> reports.Report | None:
    if not options.resume or options.force:
        return None
    made = prepared.draft.items.made
    filesystem.forget(target)
    if not is_whole(target) or _is_kept_from(target, options):
        return None
    try:
        written = open_result(
            target,
            item=None if made else options.item,
            prefix_items=prepared.draft.items.is_prefixed,
        )
        record = read_record(written)
        is_this = (
            record is not None
            and record.draft == prepared.draft.digest
            and compare(prepared.draft.tree, written.tree).agrees
            and _has_come_along(written, with_metrics_or_not(target, prepared, options))
            and _is_called(written, prepared, options)
        )
    except SurgeryError:
        return None
    if not is_this or record is None:
        return None
    if (unlike := _unlike(record, prepared, plan, options)) is not None:
        raise DestinationError(
            f"'{target}' is complete, and was made otherwise than this command would",
            why=unlike,
            fix="add `--force` to make it anew, or leave as it was what differs",
        )
    said = Remark(
        DocsPage.RESUME,
        f"'{target}' is complete: an earlier run of this command has finished it (its values were not read again)",
    )
    preview = previewed(prepared, plan, str(target), Traffic(0, 0, 0, 0), [said])
    digests = {name: one.digest for name, one in record.digests.items()}
    return reports.Report.of(
        preview,
        is_repeated=True,
        verified=True,
        digests={leaf.path: digests[leaf.path] for leaf in preview.leaves if leaf.path in digests},
        seconds=0.0,
        shared_files=len(shared := _linked(target)),
        shared=shared,
        checked=0,
    )


def _has_come_along(written: Checkpoint, prepared: Prepared) -> bool:
    """True if what stands beside the values has all that comes along with them, by names of files."""
    if prepared.is_export:
        return True
    source, there = prepared.checkpoint.location, written.location
    items = {name: plan.item for name, plan in prepared.kept_plans.items() if name in written.items}
    pairs = [
        (path, written.items[name].directory / path.name)
        for name, item in items.items()
        for path in beside_values([item])
    ]
    for path in beside_items(prepared.checkpoint, prepared.left_out):
        is_in_step = path.parent == source.folder_of_items
        around = there.folder_of_items if is_in_step else there.root
        if around is not None:
            pairs.append((path, around / path.name))
    carried = [(path, new) for path, new in pairs if not is_said_of(path.name)]
    return all(filesystem.exists(new) and _names(path) <= _names(new) for path, new in carried)


def _names(place: Path) -> set[str]:
    """The files below a folder that comes along as it is; of a tree, files of its data may be others."""
    if not filesystem.is_folder(place) or is_tree(place):
        return set()
    return {name for name, _ in files_below(place) if not is_said_of(name)}


def settings_on_record(options: Options) -> dict[str, str]:
    """What a run was told beside its plan that the result, or what is proved of it, depends on, by option."""
    told = for_record(options, but=AbovePlan.__struct_fields__)
    return told | ({} if options.probe is None else for_record(options.probe_options))


def _unlike(record: Record, prepared: Prepared, plan: Plan, options: Options) -> str | None:
    """What was asked for when the record was written and is not now, or the other way; None if all is the same."""
    now = msgspec.json.encode(prepared.functions.pinned(plan).document()).decode()
    if (unlike := first_unlike(msgspec.json.encode(record.plan).decode(), now)) is not None:
        return f"the plan's {unlike.what} was {unlike.one}, and is {unlike.other} now"
    before = {} if record.settings is UNSET else record.settings
    told = settings_on_record(options)
    for name in {**told, **before}:
        if told.get(name) != before.get(name):
            return f"`{name}` was {_said(before.get(name))}, and is {_said(told.get(name))} now"
    read = {} if record.inputs is UNSET else record.inputs
    judges = judged_by(prepared, options)
    if unknown := [one.place for name, one in judges.items() if name not in read]:
        return f"it is not on record what {quoted(unknown, 3, word='and')} held then"
    if changed := changed_inputs(read, inputs_of(prepared) | judges, of_one_draft=True):
        return f"{labels_of(changed)} {'have' if len(changed) > 1 else 'has'} changed since: {how_changed(changed)}"
    if options.seal and record.sealed is None:
        return "`--seal` was not given, and is now: `surgery seal` does that to what stands there"
    return None


def _said(value: str | None) -> str:
    return "not given" if value is None else f"'{value}'"


def _linked(target: Path) -> list[str]:
    """The files that are hard links, by their names in the result."""
    if isinstance(target, BucketPath) or not filesystem.is_folder(target):
        return []
    names = (name for name, _ in files_below(target))
    return sorted(name for name in names if filesystem.status(target / name).st_nlink > 1)


def _is_kept_from(target: Path, options: Options) -> bool:
    """True if a run to a bucket may not be over, or has kept what goes on; one that is done but for its lock has not.

    On a disk a result gets its name at once, and what is kept beside it is of another run.
    """
    if not isinstance(target, BucketPath):
        return False
    return len(leftovers_at(target, anew=True)) > len(dead_at(target, stale=options.stale))


def _is_called(written: Checkpoint, prepared: Prepared, options: Options) -> bool:
    """True if what stands there is a root, step or file as this run would make it, of the same step."""
    there, here = written.location, prepared.checkpoint.location
    step = here.step if options.as_step is None else options.as_step
    return there.shape == here.shape and (here.shape != "root" or there.step == step)
