"""What a service that keeps files must be able to do, so that a checkpoint can lie there: a disk, or a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

COMMIT_MARK: Final = "commit_success.txt"
"""What Orbax writes last into a step or item, so that a place without renames (``gs://``) tells what is whole."""

Place: TypeAlias = str | os.PathLike[str]
"""A path of a file or folder."""

Documents: TypeAlias = Callable[[Sequence[str]], Iterable[str]]
"""Which of the files in a folder are read first, all by their paths from it."""


class Status(Protocol):
    """What is known of a file without reading it, by the names of ``os.stat_result``."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_dev(self) -> int: ...
    @property
    def st_ino(self) -> int:
        """With ``st_dev``, equal for two names of one file, and another one for a file that came in its place."""

    @property
    def st_nlink(self) -> int:
        """How many names the file has: one, where there are no links."""


class Entry(Protocol):
    """Something that stands in a folder; a symbolic link counts as what it leads to, one that dangles as neither."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def is_file(self) -> bool: ...
    @property
    def is_folder(self) -> bool: ...
    @property
    def is_link(self) -> bool: ...
    @property
    def size(self) -> int: ...


class FileSystem(Protocol):
    """A disk or a service like one. What it refuses is an OSError, with the number that the system would give."""

    @property
    def needs_commit_mark(self) -> bool:
        """True where Orbax takes a save for finished only once its ``commit_success.txt`` is there."""

    @property
    def renames(self) -> bool:
        """True where what is built can be given its name at once, whole; else a mark is written last."""

    def forget(self, place: Place, *, but_begun: bool = False) -> None:
        """Look up anew what was seen at and below a place, where a listing is remembered; ``but_begun``: what was asked
        for by ``begin`` is new enough, once.
        """

    def begin(self, place: Place, documents: Documents) -> None:
        """What stands at a place and around it will be looked up, and its ``documents`` read, before anything is
        written: where that takes requests, they are under way once this returns. Raises nothing that they would.
        """

    def look_ahead(self, place: Place, *, around: bool = False) -> None:
        """What stands at a place will be asked for, and in the folder ``around`` it: where that takes requests, they
        are made now.
        """

    def fetch(self, file: Place) -> None:
        """A small file will be read, if it is there: where that takes a request, it is made now."""

    def fetch_made(self, folder: Place, documents: Documents) -> None:
        """As ``fetch``, of the ``documents`` among what this run has made in a folder: that is known without a look."""

    def entries(self, folder: Place) -> list[Entry]:
        """What stands in a folder, by name, with kinds and sizes, in one request."""

    def below(self, folder: Place) -> Iterator[tuple[str, list[Entry]]]:
        """As ``entries`` for a folder and all folders below it, by their paths from it (with a slash at the end).

        Raises:
            CheckpointError: a symbolic link leads in a circle.
        """

    def status(self, place: Place) -> Status:
        """Raises FileNotFoundError where nothing stands."""

    def status_now(self, place: Place) -> Status:
        """As ``status``, looked up anew, which no listing is needed for."""

    def real(self, place: Place) -> Path:
        """The one spelling of a place, whatever links lead to it."""

    def is_link(self, place: Place) -> bool: ...
    def open(self, place: Place) -> BufferedReader:
        """A file to read ranges of; nothing is read ahead of them but a small buffer.

        Raises:
            CheckpointError: it is no regular file.
        """

    def expect(self, place: Place, ranges: Iterable[tuple[int, int]]) -> None:
        """These ranges of a file (from one offset to another) will be read, and no others: where reads are requests,
        neighbours are read in one.
        """

    @property
    def at_once(self) -> int:
        """How many requests are under way at once where many are made; 1 where there are none."""

    def create(self, place: Place) -> BinaryIO:
        """A new file, to be written once from begin to end.

        Raises FileExistsError where one stands, at the latest when it is closed: a lock, a mark.
        """

    def replace(self, place: Place) -> BinaryIO:
        """As ``create``, in the place of what stands there, never through a link to it."""

    def put(self, place: Place, content: bytes, *, exclusively: bool = False) -> int:
        """Make or replace a file; a service holds it against the digest that comes with it.

        Returns what ``status`` says of it as ``st_ino`` from then on.
        """

    def copy(self, source: Place, target: Place) -> None:
        """Copy a file, its times and mode with it, without its bytes passing through this machine where that can be."""

    def clone(self, source: Place, target: Place) -> None:
        """A new file that shares the bytes of ``source`` until one of them is written to; or an OSError."""

    def link(self, source: Place, target: Place) -> None:
        """Another name for the file ``source``; an OSError where files have one name only."""

    def delete(self, place: Place) -> None:
        """Delete a file or link; what is not there is let be."""

    def replace_as_found(self, place: Place, content: bytes) -> None:
        """Put a file in the place of the one that was seen there last.

        Raises FileExistsError where that is another one by now, or none; also if an answer was lost.
        """

    def delete_as_found(self, place: Place) -> bool:
        """Delete a file; False if another one has come into its place since it was looked at, and stays."""

    def delete_below(self, folder: Place) -> None:
        """Delete a folder with everything in it that can be deleted, then raise what could not; follow no links."""

    def make_folder(self, folder: Place) -> None:
        """Raises FileExistsError where something stands. Nothing at all where there are no folders but names."""

    def delete_folder(self, folder: Place) -> None:
        """Delete a folder. Raises an OSError if something stands in it."""

    def kvstore(self, folder: Place) -> dict[str, Any]:
        """How TensorStore, which reads arrays by drivers of its own, is told of the folder."""
