"""Where the record of a checkpoint stands, which leaves it names, and what it says of the sources of a draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.checked_source import CheckedSource, Recorded
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.reading import CountedSource
from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.proof.surgery_json import OF_ONE_FILE, Record, decoded, encoded
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, is_tree
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.locate.items import step_items
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.step import RECORD
from surgery_cli.tree.paths import LeafPath


def write_record(path: Path, record: Record) -> None:
    """Write the record; one that came along from the source is in its ``history`` by now."""
    filesystem.write(path, encoded(record))


def record_path(checkpoint: Checkpoint) -> Path:
    """Where the record of a checkpoint stands: in the step or flat directory, beside a file or a bare directory.

    Where one stands in a bare directory, that lost the metadata which it had when it was recorded.
    """
    place = recorded_place(checkpoint)
    if filesystem.is_folder(place) and (
        filesystem.is_file(place / RECORD) or not is_inferred(checkpoint)
    ):
        return place / RECORD
    return place.with_name(f"{place.name}.{RECORD}")


def recorded_place(checkpoint: Checkpoint) -> Path:
    """What a record is about: the step, the flat directory or the file, whichever item of it was chosen."""
    return checkpoint.location.step_directory or checkpoint.location.root


def is_inferred(checkpoint: Checkpoint) -> bool:
    """True if readers infer the structure from the directory's listing, where a stray file would be a leaf."""
    return any(
        item.layout.startswith("per-leaf")
        and not filesystem.exists(item.directory / "_METADATA")
        and not filesystem.exists(item.directory / "checkpoint")
        for item in checkpoint.items.values()
    )


def record_key(checkpoint: Checkpoint, path: LeafPath) -> str:
    """How a record names a leaf: the path's unambiguous spelling, from the item's name on in a step of several trees.

    The record lies in the step, so the key does not depend on which item was chosen.
    """
    name, inner = checkpoint.place(path)
    return LeafPath((name, *inner)).spelling if has_several_trees(checkpoint) else inner.spelling


@lru_cache(maxsize=256)  # the members of an average are asked in turn
def has_several_trees(checkpoint: Checkpoint) -> bool:
    """True if the step that holds the record has several trees."""
    return len(trees_of_step(checkpoint)) > 1


def trees_of_step(checkpoint: Checkpoint) -> list[str]:
    """The names of all trees of the step that holds the record, chosen or not."""
    location = checkpoint.location
    if location.shape == "item" and location.step_directory is not None:
        return list(step_items(Listing.of(location.step_directory)).pytrees)
    others = [name for name, path in location.other_items.items() if is_tree(path)]
    return [*location.items, *others]


def read_record(checkpoint: Checkpoint) -> Record | None:
    """The record that a checkpoint carries, if any.

    Raises:
        CheckpointError: it cannot be read, or is damaged.
    """
    path = record_path(checkpoint)
    if not filesystem.is_file(path):
        refuse_special(path)
        return None
    try:
        raw = read_small(path)
    except OSError as error:
        raise CheckpointError(
            f"'{path}' cannot be read", why=error.strerror or str(error)
        ) from None
    return decoded(raw, path)


def chosen_digests(checkpoint: Checkpoint, record: Record) -> dict[str, LeafDigest]:
    """The digests of a record that are about the items that were chosen, by record key."""
    names = [LeafPath((name,)).spelling for name in trees_of_step(checkpoint)]
    if len(names) < 2:
        return record.digests
    chosen = tuple(f"{LeafPath((name,)).spelling}/" for name in checkpoint.items)
    return {key: digest for key, digest in record.digests.items() if key.startswith(chosen)}


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
    old = read_record(source)
    known, carried = old.digests if old is not None else {}, carried_keys(source)
    return found | {key: digest for key, digest in known.items() if key.startswith(carried)}


def carried_keys(source: Checkpoint) -> tuple[str, ...]:
    """What record keys begin with of the trees of the step that were not chosen, and come along as they are."""
    unchosen = [name for name in trees_of_step(source) if name not in source.items]
    return tuple(f"{LeafPath((name,)).spelling}/" for name in unchosen)


def history_after(source: Checkpoint, digests: Mapping[str, LeafDigest]) -> list[dict[str, Any]]:
    """The records of earlier runs, the source's own last, without what ``digests`` of the new record say again.

    A digest that several runs left alone stands in the last record only: a record grows by what a run did.
    """
    old = read_record(source)
    if old is None:
        return []
    newest = decode_json(msgspec.json.encode(digests))
    last = decode_json(msgspec.json.encode(old)) | {"history": []}
    return [_without(newest, entry) for entry in [*old.history, last]]


def _without(newest: Mapping[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """An earlier record without the digests that stand in the newest, under the same key, as they are."""
    digests = entry.get("digests")
    if not isinstance(digests, dict):  # of some other program
        return entry
    kept = {key: value for key, value in entry.items() if key not in OF_ONE_FILE}
    return kept | {"digests": {k: v for k, v in digests.items() if newest.get(k) != v}}
