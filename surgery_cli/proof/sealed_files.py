"""The files of a sealed source that an edit copies: they are read whole, so their digests on record must hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from surgery_cli.errors import CheckpointError, Problem, UnseenError
from surgery_cli.proof.file_marks import BY_ITS_MARK, is_its_file, stands_beside
from surgery_cli.proof.files import file_digests, files_of
from surgery_cli.proof.on_record import read_record, sealed_within
from surgery_cli.proof.record_places import own_record_path, record_path, recorded_place
from surgery_cli.proof.step_metadata_file import folders_beside
from surgery_cli.proof.surgery_json import Record
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import is_tree
from surgery_cli.store.filesystem.names import is_leftover
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item import small_files


def check_sealed_files(checkpoint: Checkpoint) -> None:
    """Hold the files beside the arrays against a seal, where the checkpoint has one, and the names of all files.

    Data files are taken by reference, and leaves in them are held against digests of their own. What has gone since
    would be missing from a result that is called whole, and what has come would be sealed into it.

    Raises:
        CheckpointError: one of them is not what was sealed, has gone, or was not there.
    """
    record = read_record(checkpoint)
    if record is None or not record.files:
        return
    copied = set(_copied(checkpoint))
    own = record_path(checkpoint)
    present = present_files(checkpoint, record.files, sealed_within(checkpoint))
    present.pop(own.name, None)
    _refuse_other_names(checkpoint, record.files.keys() - {own.name}, present.keys())
    files = {
        key: path
        for key, path in present.items()
        if path in copied or copied.intersection(path.parents)
    }
    found = file_digests(files, lambda count, key: None)
    _refuse(checkpoint, [key for key, digest in found.items() if digest != record.files[key]])


def present_files(
    checkpoint: Checkpoint, sealed: Collection[str], within: Sequence[str]
) -> dict[str, Path]:
    """The files that are there where a checkpoint is sealed, see ``sealed_within``, but for records that say so.

    A record that is ``sealed`` itself is among them: of one that came after the seal.
    """
    place = recorded_place(checkpoint)
    fronts = tuple(within)
    alone = [front.removesuffix("/") for front in fronts if front]
    records = {record_path(checkpoint), *(own_record_path(checkpoint, name) for name in alone)}
    return {
        key: path
        for key, path in files_of(place).items()
        if key.startswith(fronts) and (key in sealed or path not in records)
    }


def seen_since_recorded(checkpoint: Checkpoint) -> str:
    """What a look shows to be no more as the record beside a checkpoint says, which may be of what stood there before.

    Raises:
        CheckpointError: the record cannot be read.
    """
    record = read_record(checkpoint, of_any=True) if stands_beside(checkpoint) else None
    if record is not None and is_its_file(record, checkpoint) is False:
        return BY_ITS_MARK
    return "" if record is None else "; ".join(_seen_since_sealed(checkpoint, record))


def seen_since_sealed(checkpoint: Checkpoint) -> list[str]:
    """What names and sizes show to be no more as it was sealed, or that the record itself is not; no file is read."""
    try:
        record = read_record(checkpoint, of_any=True)
    except UnseenError:
        raise
    except CheckpointError as error:
        problem = error.problems[0]
        return [f"{problem.what}: {problem.why}"]
    return [] if record is None else _seen_since_sealed(checkpoint, record)


def _seen_since_sealed(checkpoint: Checkpoint, record: Record) -> list[str]:
    if not record.files:
        return []
    files = files_of(recorded_place(checkpoint))
    found = [f"`{key}` is gone since it was sealed" for key in record.files if key not in files]
    return found + [
        f"`{key}` has not the {known.bytes:,} bytes that it had when it was sealed"
        for key, known in (record.file_blocks or {}).items()
        if key in files and filesystem.size(files[key]) != known.bytes
    ]


def unsealed_folders(checkpoint: Checkpoint, sealed: Iterable[str]) -> list[str]:
    """Folders beside the items of a sealed step of which no file is sealed: Orbax takes each for an item."""
    tops = {name.split("/", 1)[0] for name in sealed}
    return [name for name in folders_beside(checkpoint) if name not in tops]


def check_taken_files(checkpoint: Checkpoint, hashes: Mapping[str, str]) -> None:
    """Hold the files of a result, by their digests, against the seal of the source that some of them were taken from.

    Raises:
        CheckpointError: a file came as it is now, and that is not what was sealed.
    """
    record = read_record(checkpoint)
    if record is None or not record.files:
        return
    place = recorded_place(checkpoint)
    others = {key: place / key for key, d in hashes.items() if record.files.get(key, d) != d}
    standing = {key: path for key, path in others.items() if filesystem.is_file(path)}
    found = file_digests(standing, lambda count, key: None)
    _refuse(checkpoint, [key for key, digest in found.items() if digest == hashes[key]])


def _refuse_other_names(
    checkpoint: Checkpoint, sealed: AbstractSet[str], present: AbstractSet[str]
) -> None:
    back = "put it back as it was; `surgery seal --anew` records what is there, if that is meant"
    away = "take it away; `surgery seal` records it as well, if it is meant to be there"
    fates = [(key, "is gone", back) for key in sorted(sealed - present)]
    fates += [(key, "was not there when it was sealed", away) for key in sorted(present - sealed)]
    if fates:
        raise CheckpointError.of(
            Problem(
                f"the file '{key}' of '{checkpoint.address}' {fate}",
                why="the checkpoint is sealed, and a result takes over what stands in it",
                fix=fix,
            )
            for key, fate, fix in fates
        )


def _refuse(checkpoint: Checkpoint, changed: list[str]) -> None:
    if changed:
        raise CheckpointError.of(
            Problem(
                f"the file '{key}' in '{checkpoint.address}' is not what was sealed",
                why="it has changed since: damage, or another program",
                fix="copy it again from where it is whole; `surgery seal --anew` records what is there,"
                " if that is meant",
            )
            for key in changed
        )


def _copied(checkpoint: Checkpoint) -> Iterator[Path]:
    """What an edit copies: everything beside the arrays of the step's trees, and all that is no tree."""
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            yield from small_files(item)
    place = recorded_place(checkpoint)
    trees = set(checkpoint.location.items.values())
    if not filesystem.is_folder(place) or place in trees or checkpoint.location.shape == "item":
        return
    for path in (place / name for name in filesystem.names(place) if not is_leftover(name)):
        if path not in trees and is_tree(path):
            try:
                yield from small_files(PytreeItem(path))
            except UnseenError:
                raise
            except CheckpointError:  # what is carried though it does not open is said elsewhere
                continue
        elif path not in trees:
            yield path
