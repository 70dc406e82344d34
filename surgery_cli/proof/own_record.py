"""Whether a record is of the checkpoint in which it stands, as far as metadata tells: it may have been copied there."""

from __future__ import annotations

from collections.abc import Iterable

from surgery_cli.errors import CheckpointError
from surgery_cli.proof.on_record import lost_trees, read_record, runs_of
from surgery_cli.proof.record_places import has_several_trees, record_path
from surgery_cli.proof.surgery_json import Record
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.tree.spelling import is_plain
from surgery_cli.words.lists import listed, quoted

_SHOWN = 3


def not_of_record(checkpoint: Checkpoint, record: Record) -> str:
    """What shows that the last run on record has not written the checkpoint: what it made, and is not there, and what
    it removed, and is there.

    Empty where nothing does, also where that run was about other trees. A tree that came later may have what was
    removed.
    """
    is_unsaid = not record.edited_trees and has_several_trees(checkpoint)  # in records of before
    if not record.draft or is_unsaid:
        return ""
    named: dict[str, list[LeafSpec]] = {}
    for path, text in checkpoint.tree.texts.items():
        for name in names_of(path, text):
            named.setdefault(name, []).append(checkpoint.tree[path])
    # of trees that are gone it is said that they are
    lost = tuple(f"{LeafPath((name,))}/" for name in lost_trees(checkpoint))
    last = runs_of(checkpoint, record)[0]
    gone, others, back = list[str](), list[str](), list[str]()
    for leaf in last.leaves:
        if leaf.path.startswith(lost):
            continue
        found = [spec.type_text for spec in named.get(leaf.path, ()) if spec.has_array]
        if leaf.path not in named:
            gone.append(leaf.path)
        elif found and "[" in leaf.after and leaf.after not in found:
            others.append(f"'{leaf.path}' is {found[0]}, and was {leaf.after}")
    if not record.trees or {*checkpoint.items} <= {*record.trees}:
        made = {leaf.path for leaf in last.leaves}
        back = [path for path in last.removed if path in named and path not in made]
    apart = [f"{quoted(gone, _SHOWN)} {'is' if len(gone) == 1 else 'are'} not there"] * bool(gone)
    apart += [listed(others, _SHOWN)] * bool(others)
    are = "was removed, and is" if len(back) == 1 else "were removed, and are"
    apart += [f"{quoted(back, _SHOWN)} {are} there"] * bool(back)
    return f"the last run on record has written other leaves: {'; '.join(apart)}" if apart else ""


def names_of(path: LeafPath, text: str) -> Iterable[str]:
    """How records have named a leaf: as it is shown, or spelled out where others are shown alike."""
    if is_plain(text) and text.count("/") == len(path) - 1:
        return (text,)
    return {text, str(path), path.spelling, path.exact_pattern}


def foreign_record(checkpoint: Checkpoint) -> str:
    """The record on the spot, and what shows that it is another checkpoint's; empty where nothing does.

    Raises:
        CheckpointError: the record is damaged.
    """
    record = read_record(checkpoint)
    why = "" if record is None else not_of_record(checkpoint, record)
    return f"'{record_path(checkpoint)}' does not tell of what stands here: {why}" if why else ""


def check_own_record(checkpoint: Checkpoint, record: Record, instead: str = "") -> None:
    """See that the last run on record may have written the checkpoint; ``instead`` is what else can be done.

    Raises:
        CheckpointError: it has not.
    """
    if why := not_of_record(checkpoint, record):
        raise CheckpointError(
            f"'{record_path(checkpoint)}' does not tell of what stands here",
            why=why,
            fix="it was copied here, or leaves have gone since: put the record in its place that belongs there"
            + instead,
        )


def record_to_seal(checkpoint: Checkpoint, *, anew: bool) -> Record | None:
    """What is on record of all trees, if anything; ``anew`` takes it as it is.

    Raises:
        CheckpointError: it cannot be read, or tells of another checkpoint.
    """
    record = read_record(checkpoint, of_all=True, of_any=anew)
    if record is not None and not anew:
        check_own_record(checkpoint, record, "; `--anew` records what is there now")
    return record
