"""As ``resumable_staging``, in a bucket: what is built stays, with its lock, and a journal of an object an entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import Lock
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.write.aftermath import begin_anew, kept
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.bucket_staging import BucketStaging
from surgery_cli.store.write.journal import Head, Journal, LinesInBucket, Placed, Whole
from surgery_cli.store.write.resumable_staging import being_written, can_go_on, what_is_kept
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.invocation import the_same


class ResumableBucketStaging(BucketStaging):
    """As ``BucketStaging``; what is done is written down, and stays where the run is cut short."""

    journal: Journal

    def __init__(
        self,
        destination: BucketPath,
        linker: Linker,
        head: Head,
        leaves: Sequence[LeafPath],
        left: BucketLeftover | None,
        *,
        force: bool = False,
    ) -> None:
        """``left``: what an earlier run has kept, of the same ``head``; ``leaves``: those of the draft."""
        super().__init__(destination, linker, force=force)
        self._head = head
        self._leaves = leaves
        self._left = left
        self._folder: Path = self._beside.with_name(f"{self._beside.name}-journal")
        if left is not None:
            assert left.built is not None
            assert left.folder is not None
            self._replaces = left.built != destination
            self._beside = BucketPath(left.built) if self._replaces else self._beside
            self._folder = left.folder
        owner = msgspec.to_builtins(Owner.here())
        who = {"run": self._token, "builds": str(self._built), "journal": str(self._folder)}
        self._lock = Lock(destination, json.dumps(who | owner).encode())

    def __enter__(self) -> Self:
        if self._left is None:
            super().__enter__()
            try:
                self.journal = Journal(LinesInBucket(self._folder))
                self.journal.note(self._head)
            except BaseException:
                self._withdraw()
                raise
        else:
            begin_anew()
            self.journal = Journal(LinesInBucket(self._folder))
            try:
                self._lock.take_over(self._left.content)
                if self.journal.placed is None:  # it was cut short before anything was computed
                    filesystem.delete_below(self.new)
            except FileExistsError:
                raise being_written(self._left) from None
            except BaseException:  # a signal, say: `__exit__` is not called then
                self._say_kept()
                raise
        self.journal.of(self._leaves)
        return self

    def begun(self, placed: Placed) -> None:
        self.journal.note(placed)

    def commit(self) -> None:
        self.journal.note(Whole())
        super().commit()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not self._is_whole and can_go_on(self.journal, error):
            with uninterrupted():
                self._linker.wait()
                self._say_kept()
            return
        super().__exit__(kind, error, traceback)

    def _release(self) -> None:
        """The journal goes after all that it speaks of, and before the lock that says where it is."""
        with suppress(OSError):
            filesystem.delete_below(self._folder)
        super()._release()

    def _say_kept(self) -> None:
        kept.append(what_is_kept(self._built, self.destination, self.journal, the_same()))
