"""Taking over files that never change: by reflink, by hard link, or by copying."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

import msgspec

from surgery_cli.errors import RemovedError
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.boundary import Boundary
from surgery_cli.store.filesystem.interruptions import Threads, deferred
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.local_disk import check_link
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.words.advice import NOTHING_LEFT, worded

T = TypeVar("T")

_STREAM_BYTES = 32 << 20
"""What is held of one file that passes from one service to another: a piece that was read, and what is sent of it."""


class LinkMode(StrEnum):
    """What the user allows: ``auto`` tries reflink, then hard link, then copies."""

    AUTO = "auto"
    REFLINK = "reflink"
    HARD = "hard"
    NEVER = "never"


class Carried(msgspec.Struct):
    """What was taken over: bytes that both sides share, bytes that were copied, and the new names of hard links."""

    linked_bytes: int = 0
    copied_bytes: int = 0
    shared: list[Path] = []
    cloned: list[Path] = []
    """The new names of reflinks, whose bytes are shared until one side is written to."""


class Linker:
    """Carries files of the source into the new checkpoint and counts what it did."""

    def __init__(
        self,
        mode: LinkMode = LinkMode.AUTO,
        boundary: Boundary | None = None,
        memory_bytes: int = 1 << 30,
    ) -> None:
        """``boundary``: a file that a link leads to outside of it is never hard-linked. None: there is no outside.

        ``memory_bytes``: what is held at most of files that pass through this machine, many at once.
        """
        self.mode = mode
        self._streams = max(memory_bytes // _STREAM_BYTES, 1)
        self.boundary = boundary
        self.carried = Carried()
        self.marks: list[Path] = []
        """Marks of the source that say that something is whole: they come last, where nothing is renamed."""
        self.small: list[Path] = []
        """Where files stand that were copied beside the data: nothing else would miss them."""
        self._copied: dict[Path, int] = {}
        """The new names of copies, with their bytes."""
        self._under_way: list[Future[Any]] = []
        self._lock = threading.Lock()
        self._without_reflinks: set[int] = set()
        """Filesystems of sources that were asked for a reflink into the new checkpoint and have none."""

    def carry(self, source: Path, target: Path) -> None:
        """Make immutable ``source`` appear as ``target``, sharing its bytes if that is possible and allowed.

        A way that the system refuses (other device, permissions, link limits, no reflinks) falls back to the next.

        Raises:
            CheckpointError: ``source`` is no file.
        """
        with _reading(source):
            self._carry(source, target)

    def _carry(self, source: Path, target: Path) -> None:
        status = filesystem.status(source)
        if not S_ISREG(status.st_mode):
            refuse_special(source)
        is_near = filesystem.system_of(source) is filesystem.system_of(target)
        is_near &= (
            filesystem.requests_at_once(target) == 1
        )  # a service has no links; to ask is a request
        for way in self._ways() if is_near else ():
            if way == "reflink" and self._reflink(source, target, status.st_dev):
                self.carried.linked_bytes += status.st_size
                self.carried.cloned.append(target)
                return
            if way == "hard" and self._hard_link(source, target):
                self.carried.linked_bytes += status.st_size
                self.carried.shared.append(target)
                return
        self.copy(source, target)

    def carry_all(self, files: Iterable[tuple[Path, Path]]) -> None:
        """As ``carry``, for many: where each is a request, many at once, and those that pass through here in memory."""
        pairs = list(files)
        sides = {place.parent for pair in pairs[:1] for place in pair}
        at_once = max(map(filesystem.requests_at_once, sides), default=1)
        if at_once == 1:
            for source, target in pairs:
                self.carry(source, target)
            return
        if len(set(map(filesystem.system_of, sides))) > 1:
            at_once = min(at_once, self._streams)
        with Threads(at_once, thread_name_prefix="surgery-copy") as pool:
            for _ in pool.map(self.carry, *zip(*pairs, strict=True)):
                pass

    def copy(self, source: Path, target: Path) -> None:
        """Copy a file that may be replaced or edited later; its times and mode come along.

        Raises:
            CheckpointError: ``source`` is no file.
        """
        if target.name == COMMIT_MARK and not filesystem.renames(target):
            self.marks.append(target)
            return
        with _reading(source):
            size = filesystem.size(source)
            filesystem.copy(source, target)
        with self._lock:
            self.carried.copied_bytes += size
            self._copied[target] = size

    def copy_tree(self, source: Path, target: Path) -> None:
        """Copy a file or directory that is carried along as it is; symbolic links are read as files.

        Raises:
            CheckpointError: a symbolic link leads in a circle, or something is neither a file nor a directory.
        """
        check_link(source)
        if filesystem.is_folder(source):
            filesystem.make_folders(target)
            for entry in filesystem.entries(source):
                self.copy_tree(source / entry.name, target / entry.name)
        else:
            self.copy(source, target)
            if target not in self.marks:
                self.small.append(target)

    def copy_trees(self, pairs: Iterable[tuple[Path, Path]]) -> None:
        """As ``copy_tree``, for many: where each is a request, many at once."""
        given = list(pairs)
        at_once = filesystem.requests_at_once(given[0][1]) if given else 1
        if at_once == 1:
            for source, target in given:
                self.copy_tree(source, target)
            return
        with Threads(at_once, thread_name_prefix="surgery-copy") as pool:
            for _ in pool.map(self.copy_tree, *zip(*given, strict=True)):
                pass

    def meanwhile(self, work: Callable[..., T], *given: Any) -> Future[T]:
        """Carry something while something else is done; ``wait`` before what was built is removed."""
        with deferred():
            going = in_background(work, *given)
            self._under_way.append(going)
        return going

    def wait(self) -> None:
        """Until nothing is carried any more."""
        for going in self._under_way:
            going.exception()

    def drop(self, target: Path) -> None:
        """Delete what was copied and is not needed after all."""
        filesystem.delete(target)
        self.small = [path for path in self.small if path != target]

    def drop_data(self, targets: Iterable[Path]) -> None:
        """Delete data that was taken over, or written, and that nothing refers to any more."""
        carried = self.carried
        linked = {*carried.shared, *carried.cloned}
        gone = set(targets)
        for target in gone & linked:
            carried.linked_bytes -= filesystem.size(target)
        self.count_no_more(gone)
        filesystem.delete_all(gone)
        carried.shared = [path for path in carried.shared if path not in gone]

    def count_no_more(self, targets: Iterable[Path]) -> None:
        """Of what goes, some were copies."""
        self.carried.copied_bytes -= sum(self._copied.pop(target, 0) for target in targets)

    def check_standing(self, new: Path, *, anew: bool = True) -> None:
        """What was copied to ``new`` beside the data must stand there; of the data, more is proved than that.

        ``anew``: what was seen there before does not count.

        TensorStore makes folders anew that are gone, and so a result would be finished of which half was removed.

        Raises:
            RemovedError: another program has removed some of it.
        """
        if anew:
            filesystem.forget(new)
        filesystem.look_ahead(new, around=True)  # who opens it asks what stands beside it, too
        filesystem.exists(new)  # one look tells of all that is below it
        for path in self.small:
            if not filesystem.exists(path):
                raise RemovedError(
                    f"'{path}' was removed while the new checkpoint was built",
                    why="another program cleans up there, or removed what it took for a leftover",
                    fix=worded("{}; run the command again without it", NOTHING_LEFT),
                )

    def _ways(self) -> tuple[str, ...]:
        return {
            LinkMode.AUTO: ("reflink", "hard"),
            LinkMode.REFLINK: ("reflink",),
            LinkMode.HARD: ("hard",),
            LinkMode.NEVER: (),
        }[self.mode]

    def _reflink(self, source: Path, target: Path, device: int) -> bool:
        """Try a reflink, once for each filesystem: most have none, and a store may be 100,000 files."""
        if device in self._without_reflinks:
            return False
        try:
            filesystem.system_of(source).clone(source, target)
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise
            filesystem.delete(target)
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
                self._without_reflinks.add(device)
            return False
        return True

    def _hard_link(self, source: Path, target: Path) -> bool:
        boundary = self.boundary
        if boundary is not None and not boundary.holds(source):
            return False
        try:
            # the file itself: Linux links a symbolic link as a link, whatever `follow_symlinks` says
            real = filesystem.real(source) if boundary is None else boundary.real(source)
            filesystem.system_of(source).link(real, target)
        except OSError as error:
            if error.errno in (
                errno.EXDEV,
                errno.EPERM,
                errno.EMLINK,
                errno.EOPNOTSUPP,
                errno.EACCES,
            ):
                return False
            raise
        return True


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    """What is copied or linked may go at any moment: then it is gone, and no writing has failed.

    Raises:
        CheckpointError: so.
    """
    try:
        yield
    except FileNotFoundError as error:
        filesystem.forget(source)
        if filesystem.exists(source):
            raise
        raise unreadable(source, error) from error


def bytes_held_alone(place: Path) -> int:
    """Bytes of a file, or of those in a folder, that have no other name: what their removal gives back."""
    found = [f"{folder}/{name}" for folder, _, files in os.walk(place) for name in files]
    looks = map(os.lstat, found if os.path.isdir(place) else [place])
    return sum(status.st_size for status in looks if status.st_nlink == 1)
