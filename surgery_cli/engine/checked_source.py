"""Sources whose values are held against digests on record while they are read: damage is found, not passed on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import (
    Digester,
    LeafDigest,
    digest_and_blocks,
    digest_of_text,
    digest_reading,
)
from surgery_cli.engine.forecast import reading_bytes
from surgery_cli.engine.grid import relative, windows
from surgery_cli.engine.reading import CountedSource, Readable
from surgery_cli.engine.recorded_blocks import RecordedBlocks
from surgery_cli.errors import CheckpointError
from surgery_cli.store.orbax.chunk_keeper import reading_around
from surgery_cli.tree.dtypes import Rounding
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec


class Recorded(NamedTuple):
    """The digests on record of one source, which is called ``name`` in errors: where the record says what of a leaf."""

    name: str
    digest_of: Callable[[LeafPath], LeafDigest | None]
    spec_of: Callable[[LeafPath], LeafSpec]


def has_digest(recorded: Mapping[str, Recorded], ref: LeafRef) -> bool:
    """True if a digest of a stored leaf is on record; ``recorded``: of the sources that have records, by name."""
    return ref.source in recorded and recorded[ref.source].digest_of(ref.path) is not None


class CheckedSource:
    """A source of which every leaf that is read is checked as a whole. May be used from threads.

    A block of the recorded grid is digested when it is first read, as part of what was asked for. Of a block of which
    only a part was asked for, all is read if the stored chunks around that part hold it: they are decoded anyway.
    Other blocks of which only parts were read are left to ``complete``.
    """

    def __init__(self, source: CountedSource, recorded: Recorded | None = None) -> None:
        self._source = source
        self._recorded = recorded
        self._lock = threading.Lock()
        self._checks: dict[LeafPath, _LeafCheck | None] = {}

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf's values, or a block of them.

        Raises:
            CheckpointError: they cannot be read, or all of the leaf's are read now and are not those on record.
        """
        check = self._check_of(path)
        around = None if check is None or window is None else check.decoded_with(window)
        if check is None or window is None or around is None:
            value = self._source.read(path, window)
            if check is not None:
                check.add(value, window)
            return value
        with reading_around(window):
            value = self._source.read(path, around)
        check.add(value, around)
        return value[relative(window, around)].copy()  # so that the rest can go

    def read_rounded(self, path: LeafPath, window: Window, rounding: Rounding) -> Any:
        """See ``RoundsAsItDecodes``; None for what has a digest on record, which is of values as they are stored."""
        if self._check_of(path) is not None:
            return None
        return self._source.read_rounded(path, window, rounding)

    def expect(self, path: LeafPath) -> None:
        """A leaf of which an earlier run has read something: it is checked as a whole by ``complete``."""
        self._check_of(path)

    def seen(self) -> dict[LeafPath, dict[tuple[int, ...], bytes]]:
        """The digests of what was read, leaf by leaf, by where blocks begin: of values that another can take over."""
        return {path: check.blocks for path, check in self._checks.items() if check is not None}

    def take_over(self, seen: Mapping[LeafPath, Mapping[tuple[int, ...], bytes]]) -> None:
        """Add what another process has read.

        Raises:
            CheckpointError: all of a leaf is there now, and is not what is on record.
        """
        for path, blocks in seen.items():
            check = self._check_of(path)
            if check is not None:
                check.take_over(blocks)

    def complete(self, limit_bytes: int) -> int:
        """Read what is missing of the leaves that were read in part; how many leaves agree with their digests.

        Raises:
            CheckpointError: one of them does not, or cannot be read.
        """
        checks = [check for check in self._checks.values() if check is not None]
        in_parts = [check for check in checks if check.is_read_in_parts(limit_bytes)]
        missing = (
            ((check, window), reading_bytes(check.spec, check.grid))
            for check in checks
            if check not in in_parts
            for window in check.missing()
        )

        def add(task: tuple[_LeafCheck, Window]) -> None:
            check, window = task
            check.add(self._source.read(check.path, window), window)

        for _ in in_order(add, missing, limit_bytes):
            pass
        readings = (
            (check, digest_reading(check.spec, limit_bytes, check.grid)) for check in in_parts
        )
        whole = ((one, one[1].held_bytes) for one in readings)
        for _ in in_order(lambda one: one[0].read_whole(self._source, one[1]), whole, limit_bytes):
            pass
        return len(checks)

    def _check_of(self, path: LeafPath) -> _LeafCheck | None:
        if self._recorded is None:
            return None
        with self._lock:
            if path not in self._checks:
                expected = self._recorded.digest_of(path)
                self._checks[path] = (
                    None if expected is None else _LeafCheck(self._recorded, path, expected)
                )
            return self._checks[path]


class _LeafCheck:
    """The digest of one leaf in the making, from whatever blocks come."""

    def __init__(self, recorded: Recorded, path: LeafPath, expected: LeafDigest) -> None:
        self.path = path
        self.spec = recorded.spec_of(path)
        self.grid = expected.grid or self.spec.shape
        self._name = recorded.name
        self._expected = expected
        if len(self.grid) != len(self.spec.shape) or (0 in self.grid and 0 not in self.spec.shape):
            raise self._mismatch()
        self._digester = Digester(self.spec, self.grid)
        self._lock = threading.Lock()
        # a text and None are one block
        shape = self.spec.shape if self.spec.has_array else ()
        self._count = sum(1 for _ in windows(shape, self.grid))
        self._blocks = RecordedBlocks(self.spec, self.grid)

    def decoded_with(self, window: Window) -> Window | None:
        """See ``RecordedBlocks``."""
        return self._blocks.decoded_with(window) if self.spec.has_array else None

    def is_read_in_parts(self, limit_bytes: int) -> bool:
        """True if what is missing is read with all the rest, in parts that the memory has room for."""
        return next(self.missing(), None) is not None and self._blocks.is_read_in_parts(limit_bytes)

    def read_whole(self, source: Readable, reading: Reading) -> None:
        """Read all of the leaf.

        Raises:
            CheckpointError: it is not what is on record, or cannot be read.
        """
        found, _ = digest_and_blocks(source, self.path, self.spec, reading, self.grid)
        if found.digest != self._expected.digest:
            raise self._mismatch()

    def add(self, value: Any, window: Window | None) -> None:
        """Values that were read, of the whole leaf or a part of it.

        Raises:
            CheckpointError: the leaf is complete, and is not what is on record.
        """
        if not self.spec.has_array:
            text = value if self.spec.kind is LeafKind.STRING else self.spec.empty
            if digest_of_text(text).digest != self._expected.digest:
                raise self._mismatch()
            return
        read = window or tuple(slice(0, n) for n in self.spec.shape)
        values = np.asarray(value)
        for block in self._blocks.begun(read):
            self._digester.add(block, values[relative(block, read)])
            with self._lock:
                is_last = self._digester.is_complete(self._count)
            if is_last:
                self._check_whole()

    @property
    def blocks(self) -> dict[tuple[int, ...], bytes]:
        return self._digester.blocks

    def take_over(self, blocks: Mapping[tuple[int, ...], bytes]) -> None:
        """Add the digests of blocks that another process has read; a text is read, and judged, as a whole."""
        if not self.spec.has_array:
            return
        self.blocks.update(blocks)
        self._blocks.take_over(iter(blocks))
        if self._digester.is_complete(self._count):
            self._check_whole()

    def _check_whole(self) -> None:
        if self._digester.result().digest != self._expected.digest:
            raise self._mismatch()

    def missing(self) -> Iterator[Window]:
        """The blocks that have not come."""
        if self.spec.has_array:
            yield from self._blocks.missing()

    def _mismatch(self) -> CheckpointError:
        return CheckpointError(
            f"'{self.path}' in '{self._name}' is not what its digest on record says",
            why="its stored values have changed since they were written: damage, or another program",
            fix="copy it again from where it is whole; `surgery verify` names every leaf with this fault, and"
            " `surgery seal --anew` records what is there, if that is meant",
            path=str(self.path),
        )
