"""What is on record of a checkpoint as it is now: by the step's record, and by those of items that came into it later.

A record says of which trees it is. A step of one tree, into which another item is put, has several from then on: what
is on record of the first is found under its name, and of the other it is found in its own folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from surgery_cli.engine.digests import LeafDigest
from surgery_cli.errors import CheckpointError, Problem, UnseenError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.proof.file_marks import refuse_other_file
from surgery_cli.proof.record_parts import FileBlocks, Run
from surgery_cli.proof.record_places import own_record_path, record_path, trees_of_step
from surgery_cli.proof.surgery_json import Record, decoded, tree_front
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.spelling import decode

Value = TypeVar("Value")

_OF_A_RUN: Final = ("written", "draft", "source_fingerprint")


def read_record(
    checkpoint: Checkpoint,
    *,
    of_all: bool = False,
    of_any: bool = False,
    damage: list[Problem] | None = None,
) -> Record | None:
    """What is on record of the chosen trees, or ``of_all`` trees of the step, in keys of the step as it is now.

    Where several records are about them, it is that of the latest run, with the others in its history. ``damage``
    takes what is wrong with those of items, and the others count. ``of_any`` takes the record that stands beside a file
    also where that is not what it was by then.

    Raises:
        CheckpointError: a record cannot be read, or is damaged; or a file is not what its record is of.
    """
    asked = _asked(checkpoint, of_all=of_all)
    step, own = _records(checkpoint, asked, damage)
    if not of_any:
        refuse_other_file(step, checkpoint)
    return _together(step, own, asked) if own else step


def sealed_within(checkpoint: Checkpoint) -> list[str]:
    """What the paths begin with of all files that are sealed: nothing where the step is, `NAME/` for an item by itself.

    Raises as ``read_record``, but for records of items.
    """
    step, own = _records(checkpoint, _asked(checkpoint, of_all=False), [])
    whole = [""] if step is not None and step.files else []
    return [*whole, *(_folder(name) for name, record in own.items() if record.files)]


def _asked(checkpoint: Checkpoint, *, of_all: bool) -> list[str]:
    return trees_of_step(checkpoint) if of_all else list(checkpoint.items)


def _records(
    checkpoint: Checkpoint, asked: Sequence[str], damage: list[Problem] | None
) -> tuple[Record | None, dict[str, Record]]:
    """The record of the step, and those of items that it does not know, in keys of the step as it is now."""
    step = record_at(record_path(checkpoint))
    now = trees_of_step(checkpoint)
    own: dict[str, Record] = {}
    for name in asked:
        path = own_record_path(checkpoint, name)
        record = None if path is None else _read_own(path, name, damage)
        if record is None or (step is not None and knows(step, record, name, now)):
            continue
        own[name] = as_of_tree(record, name, now)
        if step is not None:  # what it says of such an item is of a former one
            step = step.without(name, now)
    if step is not None:
        step = in_keys_of(step, now, is_gone=own.keys() == {*now})
    return step, own


def lost_trees(checkpoint: Checkpoint) -> list[str]:
    """Trees that are on record of a step, and not in it."""
    record = record_at(record_path(checkpoint))
    return [] if record is None else lost_among(record, trees_of_step(checkpoint))


def lost_among(record: Record, now: Sequence[str]) -> list[str]:
    """The trees of which a record is that a step with the trees ``now`` has not; a single one may have another name."""
    if record.trees is not UNSET:
        lost = [name for name in record.trees if name not in now]
        return lost if len(record.trees) > 1 or len(now) > 1 else []
    tops = {
        decode(key.partition("/")[0]) for key in record.digests
    }  # of before: see ``in_keys_of``
    return sorted(tops.difference(now)) if len(now) > 1 and tops.intersection(now) else []


def record_at(path: Path) -> Record | None:
    """The record that stands there, if any. Raises as ``read_record``."""
    if not filesystem.is_file(path):
        refuse_special(path)
        return None
    try:
        raw = read_small(path)
    except OSError as error:
        raise unreadable(path, error) from None
    return decoded(raw, path)


def _read_own(path: Path, item: str, damage: list[Problem] | None) -> Record | None:
    """As ``record_at``; errors say by their path that it is the record of an item, and go where ``damage`` is taken."""
    try:
        return record_at(path)
    except UnseenError:
        raise
    except CheckpointError as error:
        within = f"{item}/{path.name}" if path.parent.name == item else path.name
        problems = [replace(one, path=within) for one in error.problems]
        if damage is None:
            raise error.retold(problems) from None
        damage += problems
        return None


def in_keys_of(record: Record, trees: Sequence[str], *, is_gone: bool = False) -> Record:
    """A record with the keys that a step of these trees has; ``is_gone``: a single one is none of another name."""
    if record.trees is UNSET:  # of before: of one tree then, if no key begins with the name of one
        is_known = len(trees) < 2 or any(record.is_about(name, trees) for name in trees)
        return record if is_known else replace(record, digests={}, leaf_blocks=UNSET)
    is_another = is_gone and record.trees[0] not in trees
    if len(record.trees) == 1 and (len(trees) > 1 or is_another):
        return _rekeyed(record, put=tree_front(record.trees[0]))
    if len(record.trees) > 1 and len(trees) == 1:
        return _rekeyed(record, cut=tree_front(trees[0]))
    return record


def as_of_tree(record: Record, name: str, trees: Sequence[str]) -> Record:
    """The record of an item as one of a step of these trees, under the name that the item has now."""
    keyed = _rekeyed(record, put=tree_front(name) if len(trees) > 1 else "")
    edited = record.edited_trees or []
    edited = edited if len(edited) > 1 else [name]
    return replace(
        keyed,
        edited_trees=edited,
        files=_in_folder(record.files, name),
        file_blocks=_in_folder(record.file_blocks or {}, name),
    )


def _folder(name: str) -> str:
    """What the paths of an item's files begin with in its step."""
    return f"{name}/"


def _in_folder(of_files: Mapping[str, Value], name: str) -> dict[str, Value]:
    return {_folder(name) + file: value for file, value in of_files.items()}


def _rekeyed(record: Record, *, cut: str = "", put: str = "") -> Record:
    """A record whose keys begin otherwise: all with ``put``, or without ``cut`` those that had it."""

    def keyed(values: Mapping[str, Value]) -> dict[str, Value]:
        return {put + key.removeprefix(cut): value for key, value in values.items()}

    return replace(
        record,
        digests=keyed(record.digests),
        leaf_blocks=UNSET if record.leaf_blocks is UNSET else keyed(record.leaf_blocks),
        slots=[replace(one, node=put + one.node.removeprefix(cut)) for one in record.slots],
    )


def _together(step: Record | None, own: Mapping[str, Record], asked: Sequence[str]) -> Record:
    """One record of all that are about the trees that are asked for, as of the latest run."""
    runs = list(own.values())
    if step is not None and any(name not in own or step.has_edited(name) for name in asked):
        runs.append(step)
    last = max(own.values(), key=attrgetter("written"))  # the step's would know of it
    others = (entry for one in runs if one is not last for entry in entries(one))
    known = [*own.values(), *([] if step is None else [step])]  # the step's has the last word
    fronts = tuple(_folder(name) for name, record in own.items() if record.files)
    files, pieces = dict[str, str](), dict[str, FileBlocks]()
    for one in known:
        is_step = one is step
        files |= {k: d for k, d in one.files.items() if not (is_step and k.startswith(fronts))}
        pieces |= {k: d for k, d in (one.file_blocks or {}).items() if k not in pieces}
    blocks = {key: text for one in known for key, text in (one.leaf_blocks or {}).items()}
    return replace(
        last,
        digests={key: digest for one in known for key, digest in one.digests.items()},
        slots=list({(one.node, one.name): one for by in known for one in by.slots}.values()),
        leaf_blocks=blocks or UNSET,
        history=_in_order([*last.history, *others]),
        files=dict(sorted(files.items())),
        file_blocks=pieces or UNSET,
    )


def entries(record: Record) -> list[dict[str, Any]]:
    """A record and those before it, the latest last, as they stand in the history of a later one."""
    return [*record.history, decode_json(msgspec.json.encode(record)) | {"history": []}]


def history_of(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Each run of these records once, the latest last."""
    return _in_order([entry for record in records for entry in entries(record)])


def _in_order(every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each entry once, the latest last."""
    once = {_mark(entry): entry for entry in every}
    return sorted(once.values(), key=lambda e: e.get("sealed_anew") or e.get("written") or "")


def _mark(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells a run from others."""
    return tuple(entry.get(key) for key in ("sealed_anew", *_OF_A_RUN))


def knows(step: Record, own: Record, name: str, now: Sequence[str]) -> bool:
    """True if the record of a step says of an item what that one's own says, or more: it was written later.

    It has the run in its history then. Of an item that it is about and whose run it does not have, what stands there
    was put into the step as that record was, or else has come from elsewhere. Of a record of before times tell.
    """
    mark = _mark(msgspec.structs.asdict(own))
    if mark in map(_mark, [*step.history, msgspec.structs.asdict(step)]):
        return True
    if not step.is_about(name, now):
        return False
    if step.trees is UNSET:
        return step.last_written >= own.written and step.has_edited(name)
    return own.put_into != step.content


def runs_of(checkpoint: Checkpoint, record: Record) -> list[Run]:
    """The runs on record, the latest first, with the paths of leaves as those of the checkpoint are now.

    Of a run that was about other trees nothing is left.
    """
    chosen, is_single = list(checkpoint.items), not checkpoint.location.prefix_items
    several = trees_of_step(checkpoint)[1:]

    def as_now(run: Run) -> Run:
        trees = run.edited_trees
        if not trees:  # as in records of before
            return run
        if is_single and len(trees) > 1:
            return _respelled(run, cut=_front(chosen[0]))
        if is_single:
            return run if trees == chosen or not several else replace(run, leaves=[], removed=[])
        return _respelled(run, put=_front(trees[0])) if len(trees) == 1 else run

    return [as_now(run) for run in record.runs]


def _front(tree: str) -> str:
    """What the paths in a record begin with, where they begin with the name of a tree."""
    return f"{LeafPath((tree,))}/"


def _respelled(run: Run, *, cut: str = "", put: str = "") -> Run:
    """A run with the leaves whose paths begin with ``cut``, without that, and with ``put`` instead."""
    donors = tuple(f"{name}:" for name in run.donors)

    def spelled(path: str) -> str:
        return path if donors and path.startswith(donors) else put + path.removeprefix(cut)

    return replace(
        run,
        leaves=[
            replace(leaf, path=spelled(leaf.path), from_=leaf.from_ and spelled(leaf.from_))
            for leaf in run.leaves
            if leaf.path.startswith(cut)
        ],
        removed=[spelled(path) for path in run.removed if path.startswith(cut)],
    )


def chosen_digests(checkpoint: Checkpoint, record: Record) -> dict[str, LeafDigest]:
    """The digests of a record that are about the items that were chosen; with all, also about those that are gone."""
    if not {*trees_of_step(checkpoint)} - {*checkpoint.items}:
        return record.digests
    chosen = tuple(map(tree_front, checkpoint.items))
    return {key: digest for key, digest in record.digests.items() if key.startswith(chosen)}
