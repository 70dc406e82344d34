"""Small files that are read whole, not those that only claim to be small; many that are read or written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from surgery_cli.inputs.buckets import BucketPath, NothingThere
from surgery_cli.inputs.limits import METADATA, Limit, check_values
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.protocol import Place


def read_small(place: Place, limit: Limit = METADATA) -> bytes:
    """The bytes of a file of which ``limit`` says how many it may have.

    Raises:
        CheckpointError: it has more, and nothing of it was read; or, as JSON, more values than there is memory for.
    """
    limit.check(filesystem.size(place), f"'{place}'")
    content = filesystem.read(place)
    check_values(content, f"'{place}'")
    return content


def read_anew(place: Path) -> bytes:
    """As ``read`` of all, of what stands there now.

    Raises:
        NothingThere: nothing does, in a bucket; what its folder holds was seen by then.
    """
    filesystem.forget(place)
    try:
        return filesystem.read(place)
    except FileNotFoundError as error:
        if not isinstance(place, BucketPath):
            raise
        beside = [entry.name for entry in filesystem.entries_if_any(place.parent)]
        raise NothingThere(str(place), beside) from error


def fetch_together(files: Sequence[Place]) -> None:
    """Have files at hand that are read next, of some kilobytes each: where each takes a request, many at once."""
    at_once = min(map(filesystem.requests_at_once, files), default=1)
    if at_once > 1:
        with Threads(at_once, thread_name_prefix="surgery-fetch") as pool:
            for _ in pool.map(filesystem.read, files):
                pass


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files, and the folders around them: where each takes a request, many at once."""
    for place in files:
        filesystem.make_folders(place.parent)
    at_once = min(map(filesystem.requests_at_once, files), default=1)
    with Threads(at_once, thread_name_prefix="surgery-write") as pool:
        for _ in pool.map(filesystem.write, files, files.values()):
            pass
