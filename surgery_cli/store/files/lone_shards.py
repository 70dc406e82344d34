"""A file that is opened by itself, and is one of several in which a model lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.files.shards import NUMBERED, read_index
from surgery_cli.store.locate.file_formats import INDEX_SUFFIX


class LoneShard(NamedTuple):
    """A file of a series of ``files``; ``said_by`` is the index that names all, '' if its own name tells."""

    file: Path
    files: int
    said_by: str


def lone_shard(file: Path) -> LoneShard | None:
    """What says that a file is one of several: an index beside it, or else its name; None if nothing does."""
    folder = file.parent
    for name in _indexes(folder, file.suffix):
        try:
            shards = {*read_index(folder / name).weight_map.values()}
        except UnseenError:
            raise
        except CheckpointError:  # the file was named, and is read without it
            continue
        if file.name in shards and len(shards) > 1:
            return LoneShard(file, len(shards), name)
    numbered = NUMBERED.fullmatch(file.name)
    count = int(numbered["count"]) if numbered else 1
    return LoneShard(file, count, "") if count > 1 else None


def _indexes(folder: Path, suffix: str) -> Sequence[str]:
    if not suffix or not filesystem.is_folder(folder):
        return ()
    return [name for name in filesystem.names(folder) if name.endswith(suffix + INDEX_SUFFIX)]
