"""Folders that runs to a bucket have left and no lock stands for: nobody can tell whose they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import lock_of
from surgery_cli.store.filesystem.names import STAGING_MARK, destination_of
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.write.bucket_leftovers import cannot_be_removed
from surgery_cli.store.write.commit_marks import is_whole
from surgery_cli.store.write.inventory import inventory_of

_BUILT: Final = re.compile(
    rf"\..+{re.escape(STAGING_MARK)}[0-9a-f]{{8}}(?:-journal|-objects)?", re.DOTALL
)
"""What runs call the folders that they make beside a destination."""


class Stray:
    """A folder beside a destination that no lock stands for: of a run whose lock was removed, or another's by then.

    Whoever builds in one has made its lock before: no run that begins later can have it.
    """

    owner = None
    journal = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self._destination = destination_of(path)

    @property
    def state(self) -> State:
        """Nobody's; but what is whole there, and not at the destination, may be all that is left of it."""
        is_alone = is_whole(self.path / self._destination.name) and not is_whole(self._destination)
        return State.WHOLE if is_alone else State.UNKNOWN

    @property
    def bytes(self) -> int:
        return sum(filesystem.size(file) for file in filesystem.files_below(self.path))

    def remove(self) -> bool:
        """Remove it; False if a lock stands by now.

        Raises:
            WriteError: it cannot be removed.
        """
        lock = lock_of(self._destination)
        filesystem.forget(lock)
        if filesystem.exists(lock):
            return False
        try:
            filesystem.delete_below(self.path)
            filesystem.delete_below(inventory_of(self.path).parent)
        except OSError as error:
            raise cannot_be_removed(self.path, error) from error
        return True


def strays(path: BucketPath) -> list[Stray]:
    """Folders of runs to what ``path`` names, or of what stands in it, where no lock says whose they are."""
    named = destination_of(path)
    filesystem.forget(path)
    filesystem.forget(named.parent)
    if path != named:
        found = [path]
    else:
        begin = f".{path.name}{STAGING_MARK}"
        entries = filesystem.entries_if_any(path.parent) if path.key else []
        found = [path.parent / entry.name for entry in entries if entry.name.startswith(begin)]
        found += [path / entry.name for entry in filesystem.entries_if_any(path)]
    inventories = {inventory_of(place).parent for place in found}  # each goes with its folder
    return [
        Stray(place)
        for place in found
        if _BUILT.fullmatch(place.name)
        and place not in inventories
        and filesystem.is_folder(place)
        and not filesystem.exists(lock_of(destination_of(place)))
    ]
