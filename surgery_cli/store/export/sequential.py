"""Files that are written from their begin to their end, while blocks of leaves come in the order of their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from surgery_cli.store import filesystem
from surgery_cli.store.export.contract import Encoded, FileParts, Late, Part, Values
from surgery_cli.store.export.growing_files import GrowingFiles, growing_files
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.write.arrays import Batch, NoArrays
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.transactions import Turns
from surgery_cli.tree.paths import LeafPath

if TYPE_CHECKING:
    import numpy as np


class SequentialWriter(ItemWriter):
    """Writes files part by part; blocks come in C order, leaf after leaf as the parts name them.

    So it needs neither a place to go back to in a file nor the memory of more than a transaction, and a bucket is
    written to like a disk.
    """

    def __init__(self, plan: ItemPlan, target: Path, files: Sequence[FileParts]) -> None:
        self._files = _Files(target, files)
        early = growing_files(target, files, plan)
        super().__init__(plan, target, _Blocks(plan, self._files, early))

    @property
    def order(self) -> Sequence[PlannedLeaf]:
        """As they stand in the files."""
        return self.plan.computed

    def begin(self) -> None:
        """Make the folder, if there is to be one."""
        self._files.begin()

    def finish(self) -> None:
        """See that everything was written: what comes after the last values went with these."""
        self._files.finish()

    def abandon(self) -> None:
        """Close the file that is being written; a bucket forgets it."""
        self._files.close()


class _Blocks(NoArrays):
    """Takes the blocks of a transaction in any order, and writes them in theirs when it is committed."""

    def __init__(self, plan: ItemPlan, files: _Files, early: GrowingFiles | None) -> None:
        self._place = {leaf.path: number for number, leaf in enumerate(plan.leaves)}
        self._files = files
        self.early = self._growing = early
        self._turns = Turns()

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        found, turn = _Batch(), self._turns.take()
        try:
            yield found
        except BaseException as error:
            turn.fail(error)
            raise
        with turn.taken():
            blocks, found.blocks = sorted(found.blocks, key=self._order), []
            paths = {leaf.path for leaf, _, values in blocks if values.size}
            with nullcontext() if self._growing is None else self._growing.growing(paths):
                while blocks:  # what is written need not be held while it is read back
                    leaf, _, values = blocks.pop(0)
                    self._files.put(leaf.path, values)
                if self._growing is not None:
                    self._files.flush()

    def _order(self, block: tuple[PlannedLeaf, Window, Any]) -> tuple[int, ...]:
        leaf, window, _ = block
        return (self._place[leaf.path], *(part.start for part in window))


class _Batch:
    """The blocks of a transaction."""

    def __init__(self) -> None:
        self.blocks: list[tuple[PlannedLeaf, Window, np.ndarray[Any, Any]]] = []

    def begin(self, leaf: PlannedLeaf) -> None:
        """Its place follows from what was written before."""

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        self.blocks.append((leaf, window, values))


class _Files:
    """Where the writing stands: in which file, before which part, and how much of that is there."""

    def __init__(self, target: Path, files: Sequence[FileParts]) -> None:
        self._target = target
        self._files = files
        self._writing = self._written()
        self._wanted: Values | Encoded | None = None
        self._stream: BinaryIO | None = None

    def begin(self) -> None:
        if any(file.name for file in self._files):
            filesystem.make_folder(self._target)
        self._wanted = next(self._writing)

    def put(self, path: LeafPath, values: np.ndarray[Any, Any]) -> None:
        """The next block of a leaf: of one that comes in several parts, a block may end one and begin the next."""
        import numpy as np

        if not values.size:
            return
        wanted = self._wanted
        assert wanted is not None, f"a block of {path} comes when everything is written"
        assert wanted.path == path, f"a block of {path} comes before {wanted.path}"
        if isinstance(wanted, Encoded):
            self._wanted = self._writing.send(wanted.encode(values))
            return
        buffer = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        self._wanted = self._writing.send(buffer)

    def flush(self) -> None:
        """What was put is in the files, for whoever reads them."""
        if self._stream is not None and not self._stream.closed:
            with write_errors(self._stream.name):
                self._stream.flush()

    def finish(self) -> None:
        assert self._wanted is None, f"values of {self._wanted} are missing"

    def close(self) -> None:
        self._writing.close()

    def _written(self) -> Any:
        """Writes one file after the other; yields the part that it waits for, and is sent values of it."""
        for file in self._files:
            place = self._target / file.name if file.name else self._target
            with write_errors(place.name), filesystem.create(place) as stream:
                self._stream = stream
                yield from _parts_written(stream, file.parts)
        yield None


def _parts_written(stream: BinaryIO, parts: Sequence[Part]) -> Any:
    """Writes the parts of a file; see ``_Files``. What a block has beyond its part goes into the next."""
    left = memoryview(b"")
    for part in parts:
        if isinstance(part, bytes):
            stream.write(part)
        elif isinstance(part, Late):
            stream.write(part.make())
        elif isinstance(part, Encoded):
            stream.write((yield part))
        else:
            missing = part.bytes
            while missing:
                block = left or (yield part)
                piece, left = block[:missing], block[missing:]
                stream.write(piece)
                if part.look is not None:
                    part.look(piece)
                missing -= len(piece)
    assert not len(left)
