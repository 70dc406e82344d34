"""What a run has done that may be taken up again: written down line by line, each after what it speaks of lasts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import append_durably, put_durably, sync_directory
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.links import Carried, Linker
from surgery_cli.tree.paths import LeafPath

JOURNAL_FILE: Final = ".surgery-journal"
"""In a staging directory, beside what is built: never a part of it."""


FORM: Final = "3"
"""Of what a head says: one of its programs, so that a head of another form is of another version. 1 had no number."""


class Input(msgspec.Struct, frozen=True):
    """Something that a run reads, or is judged by."""

    kind: str
    place: str
    """Where it stands, absolute."""
    fingerprint: str
    """Of a source, by its metadata, and the names and sizes of its files; of a small file, by what it says."""
    versions: str = ""
    """What tells files from others under the same names and sizes, of which the fingerprint knows nothing: when they
    were written, or in a bucket which objects they are."""
    carried: dict[str, str] = {}
    """The same of what comes along into the result, each file or folder by its path."""


class Head(msgspec.Struct, frozen=True, tag="head"):
    """What is made, by what: only a run of which all of this is the same may go on.

    ``draft`` is the digest of the draft, with the fingerprints of all that is read; ``settings`` are those beside it on
    which the bytes of the result depend. ``command`` goes on, and ``bytes`` of values are to be written. ``inputs`` are
    all that is read, by name, and ``plan`` is what was asked for, as JSON: whoever may not go on is told what of them
    is another.
    """

    draft: str
    programs: Mapping[str, str]
    settings: Mapping[str, str]
    command: str = ""
    bytes: int = 0
    inputs: Mapping[str, Input] = {}
    plan: str = ""


class Placed(msgspec.Struct, frozen=True, tag="placed"):
    """Everything stands in its place that is not computed: what was taken over, as the report will say it."""

    linked_bytes: int
    copied_bytes: int
    shared: tuple[str, ...]
    small: tuple[str, ...]
    marks: tuple[str, ...]
    raw_bytes: Mapping[str, int]
    versions: Mapping[str, int] = {}
    """Of objects of a bucket that stand there, and are not written again."""

    @classmethod
    def of(cls, linker: Linker, new: Path, raw_bytes: Mapping[str, int]) -> Placed:
        """What ``linker`` has taken over into ``new``; by item, what was copied as it is encoded."""
        carried = linker.carried
        shared, small, marks = (
            tuple(str(path.relative_to(new)) for path in paths)
            for paths in (carried.shared, linker.small, linker.marks)
        )
        return cls(carried.linked_bytes, carried.copied_bytes, shared, small, marks, raw_bytes)

    def tell(self, linker: Linker, new: Path) -> None:
        """Let ``linker`` be as if it had done it."""
        shared = [new / name for name in self.shared]
        linker.carried = Carried(self.linked_bytes, self.copied_bytes, shared)
        linker.small = [new / name for name in self.small]
        linker.marks = [new / name for name in self.marks]


class Block(msgspec.Struct, frozen=True, array_like=True):
    """A block of a leaf, which is told by its number in the draft; ``size`` bytes of values."""

    leaf: int
    start: tuple[int, ...]
    size: int
    sha256: bytes


class Written(msgspec.Struct, frozen=True, tag="written"):
    """The blocks of one transaction."""

    blocks: tuple[Block, ...]


class Whole(msgspec.Struct, frozen=True, tag="whole"):
    """The result is proved, and about to get its name; on a disk, ``inode`` is that of its directory."""

    inode: int = 0


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """``what`` was there, and is gone: all that was written down before this counts for nothing."""

    what: str


Entry: TypeAlias = Head | Placed | Written | Whole | Lost


class Done(NamedTuple):
    """A block that was written, of ``size`` bytes."""

    path: LeafPath
    start: tuple[int, ...]
    size: int
    sha256: bytes


class Lines(Protocol):
    """Where the lines of a journal are kept."""

    def read(self) -> list[bytes]:
        """Those that are there; one may have been cut short."""

    def append(self, line: bytes) -> None:
        """One more, which lasts once this returns."""


class Journal:
    """What was done, as ``lines`` say it."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._numbers: dict[LeafPath, int] = {}
        self.head: Head | None = None
        self.placed: Placed | None = None
        self.whole: Whole | None = None
        self.lost: Lost | None = None
        self.is_withdrawn = False
        """True if what was done must not be gone on from."""
        self._blocks: dict[int, dict[tuple[int, ...], Block]] = {}
        for entry in _decoded(lines.read()):
            self._take(entry)

    def of(self, leaves: Sequence[LeafPath]) -> None:
        """The leaves of the draft, in its order."""
        self._numbers = {path: number for number, path in enumerate(leaves)}

    def note(self, entry: Entry) -> None:
        """Write down what lasts by now."""
        self._lines.append(msgspec.json.encode(entry))
        self._take(entry)

    def written(self, blocks: Sequence[Done]) -> None:
        """The blocks of a transaction that was committed."""
        if blocks:
            numbers = self._numbers
            self.note(
                Written(
                    tuple(
                        Block(numbers[one.path], one.start, one.size, one.sha256) for one in blocks
                    )
                )
            )

    def blocks_of(self, path: LeafPath) -> Mapping[tuple[int, ...], bytes]:
        """The digests of the blocks of a leaf that were written, by where they start."""
        blocks = self._blocks.get(self._numbers[path], {})
        return {start: block.sha256 for start, block in blocks.items()}

    @property
    def done_bytes(self) -> int:
        """Bytes of the values that were written."""
        return sum(block.size for held in self._blocks.values() for block in held.values())

    def _take(self, entry: Entry) -> None:
        match entry:
            case Head():
                self.head = entry
            case Placed():
                self.placed = entry
            case Whole():
                self.whole = entry
            case Lost():
                self.lost = entry
                self.placed = self.whole = None
                self._blocks.clear()
            case Written(blocks):
                for block in blocks:
                    self._blocks.setdefault(block.leaf, {})[block.start] = block


def _decoded(lines: Sequence[bytes]) -> Iterator[Entry]:
    """What the lines say; one that was cut short, or is damaged, says nothing."""
    decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
    for line in lines:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield decoder.decode(line)


@contextmanager
def withdrawing(journal: Journal | None, *kinds: type[Exception]) -> Iterator[None]:
    """Where what is done inside fails so, another run would come to the same end: it must not go on from here."""
    try:
        yield
    except kinds:
        if journal is not None:
            journal.is_withdrawn = True
        raise


class LinesOnDisk:
    """The lines of a file in a staging directory. Each begins with a line break: so it ends one that was cut short."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / JOURNAL_FILE

    def read(self) -> list[bytes]:
        return filesystem.read(self._file).split(b"\n")[1:]

    def append(self, line: bytes) -> None:
        append_durably(self._file, b"\n" + line)


_NUMBER: Final = re.compile("[0-9]{8}")


class LinesInBucket:
    """The lines are objects of a folder, one each, as nothing can be added to an object; their names count them.

    Objects of other names are of other programs: a web console marks folders, a file manager what it has shown.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        filesystem.forget(folder)
        names = [
            entry.name
            for entry in filesystem.entries_if_any(folder)
            if entry.is_file and _NUMBER.fullmatch(entry.name)
        ]
        self._places = [folder / name for name in sorted(names)]
        self._next = 1 + int(max(names, default="0"))

    def read(self) -> list[bytes]:
        if not self._places:
            return []
        with Threads(filesystem.requests_at_once(self._folder)) as pool:
            return list(pool.map(filesystem.read, self._places))

    def append(self, line: bytes) -> None:
        filesystem.write(self._folder / f"{self._next:08}", line)
        self._next += 1


def journal_in(directory: Path) -> Journal | None:
    """The journal of a staging directory on a disk; None if the run that made it kept none, or had not begun."""
    try:
        found = Journal(LinesOnDisk(directory))
    except OSError:
        return None
    return found if found.head is not None else None


def new_journal(directory: Path, head: Head) -> Journal:
    """A journal in a staging directory that has none."""
    put_durably(directory / JOURNAL_FILE, b"")
    sync_directory(directory)
    journal = Journal(LinesOnDisk(directory))
    journal.note(head)
    return journal
