"""What records say of the sources of a draft, and what of it is true of its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.checked_source import CheckedSource, Recorded
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.reading import CountedSource
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.optimizer.detect.settled import Settled
from surgery_cli.proof.on_record import as_of_tree, entries, in_keys_of, read_record
from surgery_cli.proof.record_places import record_key, trees_of_step
from surgery_cli.proof.surgery_json import OF_ONE_FILE, Record, encoded, tree_front
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath


def write_record(path: Path, record: Record) -> None:
    """Write the record; one that came along from the source is in its ``history`` by now."""
    filesystem.write(path, encoded(record))


def recorded_in(sources: Mapping[str, Any]) -> dict[str, Recorded]:
    """What is on record of the sources of a draft that have records, by their names.

    Raises:
        CheckpointError: a record cannot be read.
    """
    found = {}
    for name, source in sources.items():
        if isinstance(source, Checkpoint) and (digest_of := _digests_by_path(source)) is not None:
            found[name] = Recorded(source.address, digest_of, source.tree.__getitem__)
    return found


@lru_cache(maxsize=256)
def checked(checkpoint: Checkpoint) -> CheckedSource:
    """The checkpoint, for reads before any edit: a leaf that is read whole is held against its digest on record.

    Raises:
        CheckpointError: the record cannot be read.
    """
    return CheckedSource(CountedSource(checkpoint), recorded_in({"": checkpoint}).get(""))


def _digests_by_path(checkpoint: Checkpoint) -> Callable[[LeafPath], LeafDigest | None] | None:
    record = read_record(checkpoint)
    if record is None:
        return None
    digests = record.digests
    return lambda path: digests.get(record_key(checkpoint, path))


def digests_after(
    source: Checkpoint,
    written: Checkpoint,
    draft: Draft,
    edited: Mapping[LeafPath, LeafDigest],
    recorded: Mapping[str, Recorded],
) -> dict[str, LeafDigest]:
    """The digests that are true of the new checkpoint, by its own record keys.

    Those of written leaves; those on record of leaves that were taken as they are, from the source or a donor, under
    their new paths; and those of items that were not chosen.
    """
    found: dict[str, LeafDigest] = {}
    for path, recipe in draft.leaves.items():
        origin = recipe.home
        if path in edited:
            found[record_key(written, path)] = edited[path]
        elif recipe.is_by_reference and origin is not None and origin.source in recorded:
            digest = recorded[origin.source].digest_of(origin.path)
            if digest is not None:
                found[record_key(written, path)] = digest
    old = read_record(source, of_all=True)
    known, carried = old.digests if old is not None else {}, carried_keys(source)
    return found | {key: digest for key, digest in known.items() if key.startswith(carried)}


def carried_keys(source: Checkpoint) -> tuple[str, ...]:
    """What record keys begin with of the trees of the step that were not chosen, and come along as they are."""
    return tuple(tree_front(name) for name in trees_of_step(source) if name not in source.items)


def history_after(source: Checkpoint, digests: Mapping[str, LeafDigest]) -> list[dict[str, Any]]:
    """The records of earlier runs, the source's own last, without what ``digests`` of the new record say again.

    A digest that several runs left alone stands in the last record only: a record grows by what a run did.
    """
    old = read_record(source, of_all=True)
    return [] if old is None else without_repeated(entries(old), digests)


def without_repeated(
    history: Iterable[dict[str, Any]], digests: Mapping[str, LeafDigest]
) -> list[dict[str, Any]]:
    """Earlier records without what they say of files, and without those ``digests`` that stand in a newer one."""
    newest = decode_json(msgspec.json.encode(digests))
    return [_without(newest, entry) for entry in history]


def slots_on_record(
    records: Mapping[str, Record], written: Checkpoint, filled: Collection[str]
) -> list[Settled]:
    """What records say of slots that are in a new checkpoint as they were: of none of which a leaf is ``filled``.

    The records are of the step, called '', and of items by their names.
    """
    now = trees_of_step(written)
    known = {
        (one.node, one.name): one
        for name, record in records.items()
        for one in (as_of_tree(record, name, now) if name else in_keys_of(record, now)).slots
    }
    every = [record_key(written, path) for path in written.tree]

    def is_as_it_was(node: str) -> bool:
        below = [key for key in every if key.startswith(f"{node}/")]
        return bool(below) and not {*below} & {*filled}

    return [one for one in known.values() if is_as_it_was(one.node)]


def _without(newest: Mapping[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """An earlier record without the digests that stand in the newest, under the same key, as they are."""
    digests = entry.get("digests")
    if not isinstance(digests, dict):  # of some other program
        return entry
    kept = {key: value for key, value in entry.items() if key not in OF_ONE_FILE}
    return kept | {"digests": {k: v for k, v in digests.items() if newest.get(k) != v}}
