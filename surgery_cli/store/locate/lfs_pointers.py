"""Git-LFS pointers: small texts that stand where a clone without its large files lacks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, beginning, unreadable

POINTER_MARK: Final = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES: Final = 1024  # the specification's own limit for a pointer file


def refuse_pointers(directory: Path) -> None:
    """Refuse a tree whose files are Git-LFS pointers.

    Looks at the files that can tell: the item's own, every data file of an OCDBT store, some leaves' directories. No
    bucket is a clone, and every look would be a request: there, what does not read is looked at (`refuse_pointer`).

    Raises:
        CheckpointError: a pointer stands in place of a file.
    """
    for path in () if isinstance(directory, BucketPath) else _telling_files(directory):
        if is_pointer(path):
            raise pointer(path, directory)


def refuse_pointer(path: Path) -> None:
    """Refuse one file if it is a pointer; for files that are found not to hold what they should.

    Raises:
        CheckpointError: the file is a pointer, or cannot be read.
    """
    if is_pointer(path):
        raise pointer(path, path.parent)


def is_pointer(path: Path) -> bool:
    """True if the file is a Git-LFS pointer."""
    try:
        size = filesystem.size(path)
    except OSError as error:
        raise unreadable(path, error) from None
    return size <= _POINTER_BYTES and beginning(path, 64).startswith(POINTER_MARK)


def pointer(path: Path, directory: Path) -> CheckpointError:
    return CheckpointError(
        f"'{path}' is a Git-LFS pointer, not the file itself",
        why="the repository was cloned without its large files",
        fix=f"run `git lfs install && git lfs pull` in '{directory}'",
    )


def _telling_files(directory: Path) -> Iterator[Path]:
    listing = Listing.of(directory)
    yield from (directory / name for name in sorted(listing.files) if not name.startswith("."))
    leaves = 0
    for name in sorted(listing.folders):
        is_store = name == "d" or name.startswith("ocdbt.")
        leaves += not is_store
        if not is_store and leaves > 8:
            continue
        inside = Listing.of(directory / name)
        yield from (inside.path / file for file in sorted(inside.files))
        if "d" in inside.folders:
            data = Listing.of(inside.path / "d")
            yield from (data.path / file for file in sorted(data.files))
