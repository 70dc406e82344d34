"""What tells a file from another that came in its place: a record beside a file is of the one, and not of the other."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import UNSET, UnsetType

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.record_places import record_path, recorded_place
from surgery_cli.proof.surgery_json import Record
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import removal_of
from surgery_cli.store.open.checkpoint import Checkpoint

_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 1 << 16


def file_mark(place: Path) -> str | UnsetType:
    """SHA-256 over a file's size, and over sixteen samples of 64 KiB from its beginning to its end, or all of it.

    Unset for a folder, in which a record stands itself, and in buckets, where each sample would be a request.
    """
    if isinstance(place, BucketPath) or not filesystem.is_file(place):
        return UNSET
    size = filesystem.size(place)
    mark = hashlib.sha256(f"{size}\n".encode())
    last = max(size - _SAMPLE_BYTES, 0)
    with filesystem.reader(place) as file:
        for start in sorted({last * n // (_SAMPLES - 1) for n in range(_SAMPLES)}):
            file.seek(start)
            mark.update(file.read(_SAMPLE_BYTES))
    return f"sha256:{mark.hexdigest()}"


@lru_cache(maxsize=16)  # a run asks for the record of its source a dozen times
def _mark_of(checkpoint: Checkpoint) -> str | UnsetType:
    """As ``file_mark``, of the file that a checkpoint is."""
    return file_mark(recorded_place(checkpoint))


def of_its_file(record: Record | None, checkpoint: Checkpoint) -> Record | None:
    """The record that stands beside a checkpoint, if it is of that.

    Raises:
        CheckpointError: it is of another file, which stood there before. Flax saves over a step, or removes it, and
            leaves what stands beside it.
    """
    if record is None or record.of_file is UNSET:
        return record
    place, path = recorded_place(checkpoint), record_path(checkpoint)
    if _mark_of(checkpoint) in (UNSET, record.of_file):
        return record
    raise CheckpointError(
        f"'{path}' is the record of another file",
        why=f"'{place.name}' is not what it was when that was written: something else was saved there since",
        fix=f"if the file is right, remove its record: `{removal_of(path)}`",
    )
