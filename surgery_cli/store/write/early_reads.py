"""What is committed to a database on a disk is read back at once, while the system still has it in its cache."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.local_disk import let_cached_go
from surgery_cli.store.orbax.arrays import StoredArray, Window, below
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.stored_values import NOT_RENAMED
from surgery_cli.store.orbax.zarr import parse
from surgery_cli.store.write.array_access import UNREADABLE, read_block
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.ocdbt_references import database_spec

if TYPE_CHECKING:
    import numpy as np

CACHED_BYTES: Final = 128 << 20
"""So much of what was written last stays in the system's cache: at least what is on its way there and back."""

_FOLDER: Final = "d"
"""Where TensorStore puts the data files of a database."""


def early_reads_for(target: Path) -> EarlyReads | None:
    """Those of a database on a disk; what goes to a bucket is read back before it is sent."""
    return None if isinstance(target, BucketPath) else EarlyReads(target)


class Vouching(Protocol):
    """What knows of which leaves all that was written was read back."""

    def vouches_for(self, leaf: PlannedLeaf, array: Any) -> bool:
        """True if a leaf need not be read again; ``array``: how it is stored, as the result says when it is opened."""

    def has_copied(self, array: Any) -> bool:
        """True if what an array took as it was stored need not be held against it again."""


class ReadsEarly(Vouching, Protocol):
    """What reads back each batch after its commit."""

    def read(
        self, leaf: PlannedLeaf, window: Window, agrees: Callable[[np.ndarray[Any, Any]], bool]
    ) -> None:
        """Read back a block that was committed; one that does not agree is left to whoever reads at the end."""


class EarlyReads:
    """The blocks of a database that were read back as soon as they were committed, and where they stood then.

    At the end they need not be read again: each stored value is still at its place, and that file is what it was. So a
    large result is not read from the disk, nor does it take the cache from all that others have there: its data
    files leave it, but for the last of them. May be used from threads.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._context = new_context()  # of its own: those who write have in theirs what they wrote
        self._lock = threading.Lock()
        self._before: frozenset[str] | None = None
        """The files that stood there before the first commit: links, and copies of what was encoded."""
        self._files: dict[str, tuple[int, ...]] = {}
        """Every file that has come since, as it was when it was first seen, before anything was read of it."""
        self._cached: deque[str] = deque()
        self._cached_bytes = 0
        self._places: dict[str, bytes] = {}
        """By key, what TensorStore calls the place of a stored value: a digest of data file, offset and length."""

    def begin(self) -> None:
        """What comes from now on is read back."""
        with self._lock:
            if self._before is None:
                self._before = frozenset(self._names())

    def read(
        self, leaf: PlannedLeaf, window: Window, agrees: Callable[[np.ndarray[Any, Any]], bool]
    ) -> None:
        """Read back a block that was committed; one that does not agree is left to whoever reads at the end."""
        with self._lock:
            self._look()
        document = parse(leaf.stored_document[1])
        prefix = below(leaf.name)
        keys = [
            prefix + leaf.stored_document[0],
            *(prefix + key for key in document.keys_in(window)),
        ]
        if (places := self._places_of(keys)) is None:
            return
        kvstore = {**database_spec(self.target), "path": prefix}
        values = read_block(document.zarr, kvstore, leaf, self._context, window)
        if values is not None and agrees(values):
            with self._lock:
                self._places.update(places)

    def vouches_for(self, leaf: PlannedLeaf, array: StoredArray) -> bool:
        """True if all that was written of a stored array was read back, and stands where and as it did.

        Of what the leaf takes of others, the places are compared with what was meant.
        """
        referred = leaf.referred
        taken = (
            frozenset() if referred is None else {key for one in referred.taken for key in one.to}
        )
        written = {
            below(array.name) + key: value
            for key, value in zip(array.keys, array.values, strict=True)
            if key not in taken
        }
        if not all(map(self._places.__contains__, written)):
            return False
        files = {value.file for value in written.values() if isinstance(value, Extent)}
        try:
            found = [self._database.read(key, if_not_equal=self._places[key]) for key in written]
            is_there = all(one.result().state == "unspecified" for one in found)
        except UNREADABLE:
            return False
        return is_there and all(map(self._is_untouched, files))

    def has_copied(self, array: StoredArray) -> bool:
        """What was copied is held against where it came from once all is there."""
        return False

    def _places_of(self, keys: list[str]) -> dict[str, bytes] | None:
        """None where they cannot be read, as what is built was removed: whoever reads at the end says so."""
        try:
            found = [self._building.read(key, byte_range=slice(0, 0)) for key in keys]
            generations = [one.result().stamp.generation for one in found]
        except UNREADABLE:
            return None
        return dict(zip(keys, generations, strict=True))

    @cached_property
    def _building(self) -> Any:
        """The database while it is built. As long as it is open, nodes of its tree are decoded once for all reads."""
        return self._opened(self._context)

    @cached_property
    def _database(self) -> Any:
        """The database as it is at the end, in a context that remembers nothing of before."""
        return self._opened(new_context())

    def _opened(self, context: Any) -> Any:
        import tensorstore as ts

        return ts.KvStore.open(database_spec(self.target), context=context).result()

    def _names(self) -> list[str]:
        entries = filesystem.entries_if_any(self.target / _FOLDER)
        return [entry.name for entry in entries if not entry.name.endswith(NOT_RENAMED)]

    def _look(self) -> None:
        """Note the files that have come, and let the oldest go from the cache."""
        for name in self._names():
            file = f"{_FOLDER}/{name}"
            if file not in self._files and name not in (self._before or ()):
                self._files[file] = status = self._status(file)
                self._cached.append(file)
                self._cached_bytes += status[0]
        while self._cached_bytes > CACHED_BYTES:
            file = self._cached.popleft()
            self._cached_bytes -= self._files[file][0]
            let_cached_go(self.target / file)

    def _status(self, file: str) -> tuple[int, ...]:
        status = filesystem.status_now(self.target / file)
        return status.st_size, status.st_ino, status.st_mtime_ns

    def _is_untouched(self, file: str) -> bool:
        return self._files.get(file) == self._status(file)
