"""What is read is of a checkpoint as it was when it was opened, or it is an error: of two versions it is of neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surgery_cli.errors import CheckpointError, SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath


def changed_while_read(place: Path, replaced: str = "") -> CheckpointError:
    """What is said of a checkpoint that another program writes meanwhile; ``replaced``: an object, if it is known."""
    return CheckpointError(
        f"'{place}' changed while it was read",
        why=f"'{replaced}' was replaced or removed meanwhile"
        if replaced
        else "its metadata or data files are not what they were at the start",
        fix="wait until whatever writes to it has ended, then run the command again",
    )


@contextmanager
def as_opened(*checkpoints: Checkpoint) -> Iterator[None]:
    """What is read inside is of the checkpoints as they were when they were opened.

    Raises:
        CheckpointError: one of them was not that any more; what was read may have looked damaged, or whole.
    """
    known = [one for one in checkpoints if _is_known_again(one)]
    try:
        yield
    except (OSError, SurgeryError):
        _check(checkpoints, known)
        raise
    _check(checkpoints, known)


def _is_known_again(checkpoint: Checkpoint) -> bool:
    """True on a disk, where files tell by their names, sizes and times; what is damaged has no fingerprint."""
    if isinstance(checkpoint.location.root, BucketPath):  # which knows versions of objects
        return False
    try:
        return bool(checkpoint.fingerprint)
    except (OSError, SurgeryError):
        return False


def _check(checkpoints: tuple[Checkpoint, ...], known: list[Checkpoint]) -> None:
    for checkpoint in checkpoints:
        checkpoint.check_as_opened()
    for checkpoint in known:
        if not checkpoint.is_unchanged():
            raise changed_while_read(checkpoint.place_on_disk)


class LastingReads:
    """Reads of leaves of a checkpoint that stays open, perhaps for hours."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """A tree in a file of its own is known by that file; an array of Orbax's says itself what it is."""
        self._checkpoint = checkpoint
        self._is_file = any(isinstance(item, FileItem) for item in checkpoint.items.values())
        self._is_known = self._is_file and _is_known_again(checkpoint)

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """As ``Checkpoint.read``.

        Raises:
            CheckpointError: the leaf cannot be read, or is not what it was when the checkpoint was opened.
        """
        try:
            found = self._checkpoint.read(path, window)
        except (OSError, SurgeryError):
            self._check()
            raise
        self._check()
        if (spec := self._checkpoint.tree[path]).has_array:
            whole = window is None and found.shape != spec.shape
            if whole or found.dtype.name != spec.dtype:
                raise changed_while_read(self._checkpoint.place_on_disk)
        return found

    def _check(self) -> None:
        if self._is_known and not self._checkpoint.is_unchanged():
            raise changed_while_read(self._checkpoint.place_on_disk)
