"""What tells a file from another that came in its place: a record beside a file is of the one, and not of the other."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec import UNSET, UnsetType

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.record_places import record_path, recorded_place
from surgery_cli.proof.surgery_json import Record
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import removal_of
from surgery_cli.store.filesystem.told_digests import MD5, told_md5
from surgery_cli.store.open.checkpoint import Checkpoint

_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 1 << 16


def file_mark(place: Path) -> str | UnsetType:
    """SHA-256 over a file's size, and over sixteen samples of 64 KiB from its beginning to its end, or all of it.

    In buckets, where each sample would be a request, the MD5 that the service tells. Unset where it tells none, and for
    a folder, in which a record stands itself.
    """
    if not filesystem.is_file(place):
        return UNSET
    if isinstance(place, BucketPath):
        return told_md5(place, filesystem.status(place)) or UNSET
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


def stands_beside(checkpoint: Checkpoint) -> bool:
    """True if the record of a checkpoint stands, or would stand, beside it: what is saved over it leaves that."""
    return record_path(checkpoint).parent == recorded_place(checkpoint).parent


def is_its_file(record: Record, checkpoint: Checkpoint) -> bool | None:
    """Whether a checkpoint is the file of its record, byte by byte; None where no mark tells.

    Samples that agree prove nothing of what lies between them.
    """
    now = UNSET if record.of_file is UNSET else _mark_of(checkpoint)
    if record.of_file is UNSET or now is UNSET:
        return None
    if _kind(now) != _kind(record.of_file):  # it came here from a bucket, or went to one
        return None
    if now != record.of_file:
        return False
    are_all = filesystem.size(recorded_place(checkpoint)) <= _SAMPLES * _SAMPLE_BYTES
    return True if are_all or now.startswith(MD5) else None


def _kind(mark: str) -> str:
    return mark.partition(":")[0]


def refuse_other_file(record: Record | None, checkpoint: Checkpoint) -> None:
    """See that what stands beside a record is not seen to be another file than that is of.

    Raises:
        CheckpointError: it is. Flax saves over a step, or removes it, and leaves what stands beside it.
    """
    if record is not None and is_its_file(record, checkpoint) is False:
        raise another_or_damaged(checkpoint, BY_ITS_MARK)


BY_ITS_MARK: Final = "its bytes are not those on record"


def another_or_damaged(checkpoint: Checkpoint, seen: str) -> CheckpointError:
    """The error for what is not as the record beside it says, as was ``seen``: nothing tells why."""
    said, ways = said_of_both(checkpoint)
    look = f"`surgery verify {quote(str(recorded_place(checkpoint)))}` names what differs"
    return CheckpointError(said, why=f"{seen}; {WHICH_OF_BOTH}", fix=f"{look}; {ways}")


WHICH_OF_BOTH: Final = (
    "it was damaged since, or something else was saved over it, and no digest tells which"
)


def said_of_both(checkpoint: Checkpoint) -> tuple[str, str]:
    """What is said of a checkpoint that is not as the record beside it says, and what can be done after a look."""
    place, record = recorded_place(checkpoint), record_path(checkpoint)
    named = quote(str(place))
    ways = (
        f"if it is damaged, copy it again from where it is whole; if it is right, `surgery seal --anew {named}` records"
        f" what is there, or, where it is another training's, `{removal_of(record)}` removes what is on record of the"
        " one before"
    )
    return f"'{place}' is not what it was when '{record.name}' was written", ways
