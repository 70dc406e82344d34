"""Files that are written from begin to end are read back as they grow, while the system has them in its cache."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.export.contract import FileParts, Values
from surgery_cli.store.files.contiguous import ContiguousArray, Segment
from surgery_cli.store.filesystem.local_disk import let_cached_go
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.write.early_reads import CACHED_BYTES
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.tree.paths import LeafPath

if TYPE_CHECKING:
    import numpy as np


def growing_files(target: Path, files: Sequence[FileParts], plan: ItemPlan) -> GrowingFiles | None:
    """Those on a disk of which it is known beforehand where values stand; None for others.

    A part that is looked at gives a checksum, which readers hold against the whole file: that is done at the end.
    """
    if isinstance(target, BucketPath):
        return None
    specs = {leaf.path: leaf.spec for leaf in plan.leaves}
    places: dict[LeafPath, Path] = {}
    segments: dict[LeafPath, list[Segment]] = defaultdict(list)
    for file in files:
        at = 0
        for part in file.parts:
            if isinstance(part, bytes):
                at += len(part)
            elif isinstance(part, Values) and part.look is None:
                places[part.path] = target / file.name if file.name else target
                segments[part.path].append(Segment(at, part.bytes))
                at += part.bytes
            else:
                return None
    return GrowingFiles(
        {
            path: ContiguousArray(
                place, specs[path].shape, specs[path].dtype, segments=tuple(segments[path])
            )
            for path, place in places.items()
        }
    )


class GrowingFiles:
    """The blocks of files that were read back as soon as they were written, and what the files were then.

    At the end a leaf need not be read again if all of it was, the files themselves say that it stands where it was
    meant to, and nobody else has written there. What was read back goes to the disk and leaves the cache, but for the
    last of it. May be used from threads.
    """

    def __init__(self, arrays: Mapping[LeafPath, ContiguousArray]) -> None:
        """``arrays``: where the values of each leaf are meant to stand."""
        self._arrays = arrays
        self._lock = threading.Lock()
        self._read: dict[LeafPath, dict[tuple[int, ...], int]] = defaultdict(dict)
        """By leaf the bytes of each block that was read back, by where it begins."""
        self._standing: dict[Path, tuple[int, ...]] = {}
        """Every file that values were written to, as it was after the last of them."""
        self._spoiled: set[Path] = set()
        """Those to which others wrote in between."""
        self._cached: Counter[Path] = Counter()
        """By file the bytes that were read back and have not left the cache."""

    @contextmanager
    def growing(self, paths: Iterable[LeafPath]) -> Iterator[None]:
        """Values of these leaves are written inside, and stand in their files by the end; one batch after the other."""
        files = {self._arrays[path].path for path in paths}
        self._spoiled |= {one for one in files & self._standing.keys() if not self._stands(one)}
        yield
        self._standing |= {file: _status(file) for file in files}

    def read(
        self, leaf: PlannedLeaf, window: Window, agrees: Callable[[np.ndarray[Any, Any]], bool]
    ) -> None:
        """Read back a block that was written; one that does not agree is left to whoever reads at the end."""
        array = self._arrays[leaf.path]
        with suppress(CheckpointError):
            values = array.read(window)
            if agrees(values):
                with self._lock:
                    start = tuple(part.start for part in window)
                    self._read[leaf.path][start] = values.nbytes
            self._let_go(array.path, values.nbytes)

    def has_copied(self, array: object) -> bool:
        """Nothing is copied as it is stored."""
        return False

    def vouches_for(self, leaf: PlannedLeaf, array: object) -> bool:
        """True if all of a leaf was read back, and stands where and as it did then.

        ``array``: where the files themselves say that it stands, now that they are whole.
        """
        meant = self._arrays[leaf.path]
        if array != meant or meant.path in self._spoiled:
            return False
        whole = sum(segment.length for segment in meant.segments)
        return sum(self._read[leaf.path].values()) == whole and self._stands(meant.path)

    def _let_go(self, file: Path, count: int) -> None:
        """Once enough was read back, write it to the disk, and let it leave the cache."""
        with self._lock:
            self._cached[file] += count
            if self._cached.total() <= CACHED_BYTES:
                return
            files, self._cached = list(self._cached), Counter()
        for one in files:
            with write_errors(one.name):
                let_cached_go(one, written=True)

    def _stands(self, file: Path) -> bool:
        return self._standing.get(file) == _status(file)


def _status(file: Path) -> tuple[int, ...]:
    status = filesystem.status_now(file)
    return status.st_size, status.st_ino, status.st_mtime_ns
