"""A database in a bucket that is written through a buffer: what can be asked for at once is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from surgery_cli.errors import WriteError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.contexts import POOLS
from surgery_cli.store.write.database_versions import newest_version
from surgery_cli.store.write.upload_buffer import BufferedPart, UploadBuffer
from surgery_cli.words.advice import NOTHING_LEFT, worded


class BufferedDatabase:
    """A clone whose files come while leaves are computed, or a new one."""

    def __init__(
        self, buffer: UploadBuffer, linker: Linker, opened: Callable[[BufferedPart], Any]
    ) -> None:
        """``opened`` opens it for what is written together."""
        self._buffer = buffer
        self._linker = linker
        self._opened = opened
        self._taken: Sequence[tuple[Path, Path]] = ()
        self._coming: Future[Any] | None = None
        self._first: BufferedPart | None = None
        self._has_begun = False
        self._waits = False

    def clone(self, files: Sequence[tuple[Path, Path]], of: Survey, *, opens: bool) -> None:
        """Carry files, from where to where, meanwhile; ``opens``: values are the next that is put there.

        Where the tree that it is cloned ``of`` is in memory, what is put there need not wait for the files.
        """
        self._taken = files
        self._buffer.begin_database(newest_version(of.manifest), of.nodes_in_memory)
        self._waits = not of.is_in_memory
        self._first = self._buffer.part() if opens and self._waits else None
        self._coming = self._linker.meanwhile(self._take_over)

    def _take_over(self) -> Any:
        """Carry the files, and look into them for the nodes that the first transaction changes."""
        self._linker.carry_all(self._taken)
        if self._first is None:
            return None
        database = self._opened(self._first)
        database.read("\0").result()  # where there is nothing
        return database

    def part(self) -> BufferedPart:
        """What is written together."""
        first, self._has_begun = None if self._has_begun else self._first, True
        return first or self._buffer.part()

    def wait(self) -> Any:
        """Until the files are there; gives the database, as it was opened for the first part."""
        return None if self._coming is None else self._coming.result()

    def open(self, part: BufferedPart) -> Any:
        """Parts are put into it one after the other."""
        first = self.wait() if self._waits else None
        return self._opened(part) if first is None or part is not self._first else first

    def check_copies(self, part: BufferedPart, values: Mapping[str, bytes]) -> None:
        """Read stored values that were put there as they are back from what is sent next, in memory.

        Raises:
            WriteError: they are others.
        """
        import tensorstore as ts

        # in whose cache nothing is of what was written
        context = ts.Context(POOLS, parent=self._buffer.context)
        database = ts.KvStore.open(part.database(), context=context).result()
        for key, value in values.items():
            if database.read(key).result().value != value:
                raise WriteError(
                    f"'{key}' does not read back as it was copied",
                    why="what was put into the database of it is something else; it was not sent",
                    fix=worded("{}; this is worth a report", NOTHING_LEFT),
                )

    def finish(self) -> Survey | None:
        """Send the manifest, while files go that are needed no more; what the database holds, as it was sent."""
        self.wait()
        manifest = self._buffer.end_database()
        if manifest is None:
            return None
        target = self._buffer.target
        survey = Survey(target, opened=self._buffer.folder)
        self._buffer.let_go()
        needed = {target / file for file in survey.files}
        gone = {file for _, file in self._taken} - needed
        with Threads(filesystem.requests_at_once(target)) as pool:
            sending = pool.submit(self._buffer.send, MANIFEST, manifest)
            for _ in pool.map(filesystem.delete, gone):
                pass
            sending.result()
        self._linker.count_no_more(gone)
        return survey
