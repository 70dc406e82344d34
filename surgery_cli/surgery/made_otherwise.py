"""What stands at the destination of a run with `--resume`: what the run would make, or what of it is other, and why."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from surgery_cli.errors import CheckpointError, LimitError, SurgeryError, UnseenError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.planning import Plan
from surgery_cli.proof.metadata_files import metadata_faults
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.result import open_result
from surgery_cli.proof.structure import compare
from surgery_cli.proof.surgery_json import Record
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below, is_tree
from surgery_cli.store.locate.location import Location, locate
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.carried_files import beside_items, beside_values
from surgery_cli.surgery.file_versions import is_said_of
from surgery_cli.surgery.item_of_result import item_of_result
from surgery_cli.surgery.kept_inputs import (
    Changed,
    changed_inputs,
    how_changed,
    inputs_of,
    judged_by,
    labels_of,
)
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.same_places import in_the_words_of, name_then, was, with_places
from surgery_cli.surgery.settings_on_record import settings_on_record
from surgery_cli.surgery.step_metrics import with_metrics_or_not
from surgery_cli.surgery.unlike_plans import first_unlike
from surgery_cli.surgery.what_stands import other_files
from surgery_cli.words.lists import quoted

_LEAVE: Final = "leave as it was what differs"


class Other(NamedTuple):
    """Why what stands there is not done already, and what would mend that.

    ``back`` makes what stands there do, if anything does; ``fix`` is said in the place of that where it could also be
    replaced.
    """

    why: str
    back: str = _LEAVE
    fix: str = ""
    what: str = ""


def seen_there(
    target: Path, prepared: Prepared, plan: Plan, options: Options
) -> Record | Other | None:
    """The record of what stands there, if it is what this run would make; None if that is said elsewhere."""
    step = step_made(prepared.checkpoint.location, options)
    try:
        stands = locate(str(filesystem.absolute(target)))
    except (LimitError, UnseenError):
        raise
    except SurgeryError:  # not one checkpoint
        return None
    if stands.shape == "root" and step is not None and step not in stands.steps:
        lacks = f"it has no step {step}, which is what this command makes"
        return Other(lacks, back="", what=f"the destination '{target}' is a run of other steps")
    try:
        written = open_result(
            target,
            item=item_of_result(prepared, options.item),
            prefix_items=prepared.draft.items.is_prefixed,
            step=step,
        )
        record = read_record(written)
        if record is None or record.inputs is UNSET:
            return _without_record(target, is_there=record is not None)
        if (other := _asked_otherwise(record, target, prepared, plan, options)) is not None:
            return other
        kept = with_metrics_or_not(target, prepared, options)
        why = _stands_otherwise(record, written, kept, options)
        return record if why is None else _damaged(target, why)
    except (LimitError, UnseenError):
        raise
    except SurgeryError as error:
        cause = error if error.__cause__ is None else error.__cause__
        problem = cause.problems[0] if isinstance(cause, CheckpointError) else error.problems[0]
        return _damaged(target, ": ".join(filter(None, (problem.what, problem.why))))


def _damaged(target: Path, why: str) -> Other:
    return Other(why, "put back what stood there", what=f"'{target}' is not as a run has left it")


def _without_record(target: Path, *, is_there: bool) -> Other:
    said = "what its record says is not of such a run" if is_there else "it has no record of a run"
    return Other(
        f"{said}: nothing tells whether it is what this command makes",
        back="",
        fix="name another, or add `--force` to replace it once the new one is complete",
        what=f"the destination '{target}' exists",
    )


def _asked_otherwise(
    record: Record, target: Path, prepared: Prepared, plan: Plan, options: Options
) -> Other | None:
    """What was asked for when the record was written and is not now, or the other way; None if all is the same."""
    if (why := _of_items(record, prepared.checkpoint.location, options.item)) is not None:
        return Other(why)
    read = {} if record.inputs is UNSET else record.inputs
    judges = judged_by(prepared, options)
    inputs = inputs_of(prepared) | judges
    names = {name: then for name in prepared.sources if (then := name_then(name, inputs, read))}
    is_one = record.draft in (prepared.draft.digest, prepared.draft.digest_as(names))
    changed = changed_inputs(read, inputs, of_one_draft=is_one)
    now = _document(prepared.functions.pinned(plan).document())
    before = in_the_words_of(now, _document(record.plan))
    if (why := _of_plans(before, now)) is not None:
        return Other(why)
    told = {name: with_places(text, inputs) for name, text in settings_on_record(options).items()}
    given = {} if record.settings is UNSET else record.settings
    given = in_the_words_of(told, {name: with_places(text, read) for name, text in given.items()})
    for name in {**told, **given}:
        if told.get(name) != given.get(name):
            return Other(
                f"`{name}` was {_said(given.get(name))}, and is {_said(told.get(name))} now"
            )
    if unknown := [one.place for name, one in judges.items() if was(name, one, read) is None]:
        return Other(f"it is not on record what {quoted(unknown, 3, word='and')} held then")
    if changed:
        return _of_inputs(changed)
    if not is_one:
        digests = f"its draft's digest was {record.draft}, and is {prepared.draft.digest} now"
        return Other(f"{digests}: an option is another, or code that is called")
    if options.seal and record.sealed is None:
        seal = f"`surgery seal {quote(str(target))}` does that to what stands there"
        return Other("`--seal` was not given, and is now", back=seal, fix=seal)
    return None


def _of_items(record: Record, source: Location, item: str | None) -> str | None:
    """That another item of a step was edited: the record says of which trees a run was, and not how that was asked."""
    trees, edited = record.trees or [], record.edited_trees or []
    then = edited[0] if len(edited) == 1 < len(trees) else None
    is_same = then == item or edited == [*source.items]
    if is_same or len(trees) < 2 or source.folder_of_items is None:
        return None
    return f"`--item` was {_said(then)}, and is {_said(item)} now"


def step_made(source: Location, options: Options) -> int | None:
    """The step that this run makes, of a run; a training may have saved others beside it since."""
    if source.shape != "root":
        return None
    return source.step if options.as_step is None else options.as_step


def _document(values: dict[str, Any]) -> dict[str, Any]:
    """A plan as its record has it, but for digests of functions: these are inputs, and told as such."""
    found = decode_json(msgspec.json.encode(values), type=dict[str, Any])
    for edit in found.get("edits", ()):
        edit.pop("sha256", None)
    return found


def _of_plans(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    texts = (msgspec.json.encode(one).decode() for one in (before, now))
    if (unlike := first_unlike(*texts)) is None:
        return None
    return f"the plan's {unlike.what} was {unlike.one}, and is {unlike.other} now"


def _of_inputs(changed: list[Changed]) -> Other:
    """What of them is another: another step of a run, as a rule, or what was written since."""
    rewritten = [one for one in changed if not one.is_elsewhere]
    if not rewritten:
        were = quoted([one.was.place for one in changed], word="and")
        is_read = f"{labels_of(changed)} {'are' if len(changed) > 1 else 'is'} read now"
        return Other(f"it is made of {were}, and {is_read}", f"name {were} in its place")
    has = "have" if len(rewritten) > 1 else "has"
    why = f"{labels_of(rewritten)} {has} changed since: {how_changed(rewritten)}"
    came = [n for one in rewritten for n in one.now.carried if n not in one.was.carried]
    is_only_more = all(
        one.is_read_the_same and one.was.carried.items() <= one.now.carried.items()
        for one in rewritten
    )
    if is_only_more:
        return Other(why, f"move {quoted(sorted(came), 3, word='and')} to another place")
    return Other(why)


def _said(value: str | None) -> str:
    return "not given" if value is None else f"'{value}'"


def _stands_otherwise(
    record: Record, written: Checkpoint, prepared: Prepared, options: Options
) -> str | None:
    """What stands there that the run has not made so, or does not stand there; None if all does."""
    there, here = written.location, prepared.checkpoint.location
    shape = "flat" if here.shape == "item" else here.shape  # an item by itself is one tree
    shape = "file" if prepared.is_export else shape
    if there.shape != shape or there.step != (step_made(here, options) or there.step):
        return f"it is {there.chosen}, and what is made is {here.chosen}"
    if record.stands is not UNSET and (why := other_files(record.stands, written)) is not None:
        return why
    found = compare(prepared.draft.tree, written.tree)
    for path in found.only_in_a:
        return f"'{path}' is not in it"
    for path in found.only_in_b:
        return f"'{path}' is in it, which is not made"
    for one in found.changed:
        return f"'{one.path}' is {one.b} in it, not {one.a}"
    if lacks := _lacking(written, prepared):
        return f"of what comes along with its values, {quoted(lacks, 3, word='and')} is missing"
    known = {why for _, why in metadata_faults(prepared.checkpoint)}
    faults = [one for one in metadata_faults(written) if one[1] not in known]
    return ": ".join(faults[0]) if faults else None


def _lacking(written: Checkpoint, prepared: Prepared) -> list[str]:
    """What comes along with the values, by names of files, and does not stand beside them."""
    if prepared.is_export:
        return []
    source, there = prepared.checkpoint.location, written.location
    is_item = source.shape == "item"  # the result is that tree, without a name
    items = {
        "" if is_item else name: plan.item
        for name, plan in prepared.kept_plans.items()
        if is_item or name in written.items
    }
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
    return [
        str(new.relative_to(there.root))
        for path, new in carried
        if not (filesystem.exists(new) and _names(path) <= _names(new))
    ]


def _names(place: Path) -> set[str]:
    """The files below a folder that comes along as it is; of a tree, files of its data may be others."""
    if not filesystem.is_folder(place) or is_tree(place):
        return set()
    return {name for name, _ in files_below(place) if not is_said_of(name)}
