"""What stands in a directory, whose tree it is, and what is said where it cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, ParamSpec, TypeVar

from surgery_cli.errors import CheckpointError, NotPermittedError, ServiceFails, UnseenError
from surgery_cli.inputs.buckets import NoBucket, Replaced, ServiceRefusal, path_at, removal
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import is_database, is_leftover, unfinished_name
from surgery_cli.store.filesystem.permissions import barrier_before, who_may
from surgery_cli.store.filesystem.protocol import Entry

P = ParamSpec("P")
R = TypeVar("R")

ARRAY_DOCUMENTS: Final = (".zarray", "zarr.json")

# t5x: checkpoints.py.
_T5X: Final = b"\x82\xa7version"


class Listing(NamedTuple):
    """Names in one directory. Symbolic links count as what they point to; one that dangles is a file.

    ``special`` are those of the files that are none: pipes, sockets, devices.
    """

    path: Path
    files: frozenset[str]
    folders: frozenset[str]
    special: frozenset[str] = frozenset()

    @classmethod
    def of(cls, path: Path) -> Listing:
        """List ``path`` in one pass, without a system call for each entry.

        Raises:
            CheckpointError: the directory cannot be read.
        """
        try:
            entries = filesystem.entries(path)
            folders = frozenset(entry.name for entry in entries if entry.is_folder)
            files = frozenset(entry.name for entry in entries) - folders
            others = [entry for entry in entries if not (entry.is_folder or entry.is_file)]
            special = frozenset(e.name for e in others if filesystem.exists(e.place))
        except OSError as error:
            raise unreadable(path, error) from None
        return cls(path, files, folders, special)

    def refuse_special(self) -> None:
        """Refuse a directory in which something stands that is neither a file nor a directory.

        Raises:
            CheckpointError: so; it is named.
        """
        for name in sorted(self.special):
            refuse_special(self.path / name)

    def without(self, names: Iterable[str]) -> Listing:
        """The same, as if folders of these names were not there."""
        return self._replace(folders=self.folders.difference(names))

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.folders

    def unfinished(self) -> list[str]:
        """Names of unfinished saves, sorted."""
        return sorted(name for name in self.folders if unfinished_name(name) is not None)

    def own_folders(self) -> Iterator[str]:
        """Sorted names of folders that are neither unfinished saves nor leftovers of surgery, nor databases."""
        for name in sorted(self.folders):
            if not (unfinished_name(name) or is_leftover(name) or is_database(name)):
                yield name


def holds_pytree(listing: Listing) -> bool:
    """True if a pytree stands at the root of the directory, in any layout."""
    if listing.files & {"_METADATA", "manifest.ocdbt"}:
        return True
    # TensorFlow writes a text file of the same name, which begins with a letter; a msgpack map cannot. Beside arrays it
    # was one, and is damaged: the folders of leaves are no items of a step.
    if "checkpoint" in listing.files and starts_as_msgpack(listing.path / "checkpoint"):
        return True
    # `checkpoint` alone is the one array of an ArrayCheckpointHandler, not a tree.
    folders = sorted(listing.folders - {"checkpoint"})
    return any(is_array_folder(listing.path / name) for name in folders[:32])


def is_tree(path: Path) -> bool:
    """True for a directory at whose root a pytree stands."""
    return filesystem.is_folder(path) and holds_pytree(Listing.of(path))


def files_below(folder: Path) -> Iterator[tuple[str, Entry]]:
    """Every file below a folder, by its path from it; links count as what they lead to, also those that dangle.

    Raises:
        CheckpointError: a link leads in a circle, or something is neither a file nor a directory.
    """
    for prefix, entries in filesystem.below(folder):
        refuse_special_among(entries)
        yield from ((prefix + entry.name, entry) for entry in entries if not entry.is_folder)


def refuse_special_among(entries: Iterable[Entry]) -> None:
    """Refuse entries that are neither files nor directories, nor links that lead nowhere.

    Raises:
        CheckpointError: so.
    """
    for entry in entries:
        if not (entry.is_folder or entry.is_file):
            refuse_special(path_at(entry.place))


def is_array_folder(path: Path) -> bool:
    """True if an array document stands in the folder; False where this user may not look."""
    try:
        return any(filesystem.is_file(path / name) for name in ARRAY_DOCUMENTS)
    except PermissionError:
        return False


def starts_as_msgpack(path: Path) -> bool:
    """True if the file begins with a msgpack map whose first key is text, or is an empty map.

    A pickle (0x80) and an HDF5 file (0x89) begin like a map too, but no text key follows.
    """
    head = beginning(path, 6)
    if head == b"\x80":
        return True
    first = head[0] if head else 0
    key = 1 if 0x80 < first <= 0x8F else {0xDE: 3, 0xDF: 5}.get(first, 0)
    return 0 < key < len(head) and (0xA0 <= head[key] <= 0xBF or 0xD9 <= head[key] <= 0xDB)


def holds_t5x(folder: Path) -> bool:
    """True if T5X has saved there: its msgpack file, which comes after all arrays, begins with its version."""
    place = folder / "checkpoint"
    return filesystem.is_file(place) and beginning(place, len(_T5X)) == _T5X


def beginning(path: Path, count: int) -> bytes:
    """The first ``count`` bytes of a file.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        return filesystem.read(path, count=count)
    except OSError as error:
        raise unreadable(path, error) from None


def removal_of(path: Path) -> str:
    """The command that removes what stands at a path, as it stands there: an object, or a folder and all below it."""
    is_object = False
    with suppress(OSError):
        is_object = filesystem.is_file(path)
    return removal(path, is_object=is_object)


@contextmanager
def reading(place: Path, *, is_destination: bool = False) -> Iterator[None]:
    """What the system refuses while a checkpoint at ``place`` is read is said of the file that it refuses.

    ``is_destination``: it is looked at since something is to be made there.

    Raises:
        CheckpointError: so.
    """
    try:
        yield
    except OSError as error:
        if is_destination and isinstance(error, NoBucket):
            what = f"the destination's bucket '{error.filename}' is not there"
            raise ServiceFails(what, why=error.strerror, fix=error.fix) from error
        raise unreadable(path_at(os.fsdecode(error.filename or place)), error) from error


def reads(use_case: Callable[P, R]) -> Callable[P, R]:
    """For what only reads, first of all the checkpoint that its first argument names: see ``reading``."""

    @wraps(use_case)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        with reading(path_at(str(next(iter((*args, *kwargs.values())), "")))):
            return use_case(*args, **kwargs)

    return guarded


class PassingOver(suppress):
    """As ``contextlib.suppress``, but for what could not be looked at: nobody goes on as if it were not so."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return not isinstance(error, UnseenError) and super().__exit__(kind, error, traceback)


def damage_of(path: Path, error: OSError) -> CheckpointError:
    """As ``unreadable``, where that tells something of what is there.

    Raises:
        UnseenError: it tells nothing.
    """
    why = unreadable(path, error)
    if isinstance(why, UnseenError):
        raise why from None
    return why


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """The error for a file or directory that the system does not give, or no longer."""
    if isinstance(error, FileNotFoundError) and not filesystem.is_link(path):
        return CheckpointError(
            f"'{path}' is gone",
            why="it was removed or moved while it was read",
            fix="wait until whatever changes it has ended, or name another checkpoint or step",
        )
    if isinstance(error, Replaced):
        is_it = error.filename == str(path)
        why = error.strerror if is_it else f"'{error.filename}' was replaced or removed meanwhile"
        return ServiceFails(f"'{path}' changed while it was read", why=why, fix=error.fix)
    if isinstance(error, ServiceRefusal):
        return ServiceFails(f"'{path}' cannot be read", why=error.strerror, fix=error.fix)
    if isinstance(error, PermissionError):
        barrier = barrier_before(path)
        return NotPermittedError(
            f"'{barrier}' cannot be read",
            why=f"{error.strerror or error}: {who_may(barrier)}",
            fix="ask its owner to let you read it, or run this as a user who may",
        )
    return CheckpointError(
        f"'{path}' cannot be read",
        why=error.strerror or str(error),
        fix="check its permissions, and that links inside it still lead somewhere",
    )
