"""Leaves held against digests on record, whole or block by block, several at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple

from surgery_cli import reports
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.leaf_digest import sort_of
from surgery_cli.draft.seen import NonFinite
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, c_order_bytes, digest_reading, leaf_digest
from surgery_cli.engine.finite import count_non_finite
from surgery_cli.engine.grid import block_bytes, window_shape, windows
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.script.user_code import Say
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.expected_digests import Expected
from surgery_cli.surgery.leaf_names import document_names
from surgery_cli.surgery.look_memory import Look, Looks, planned_looks
from surgery_cli.surgery.sampling import Parts, blocks_of, windows_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.spelling import decode
from surgery_cli.words.lists import listed

_MOST_BLOCKS: Final = 4

OF_ANOTHER: Final = frozenset({"values", "shape", "missing"})
"""What is found of leaves that are whole, where they are held against digests of others."""


class _Task(NamedTuple):
    """A leaf to be read, or the one of its blocks that lies in ``window``."""

    path: LeafPath
    block: int | None = None
    window: Window = ()


class _Read(NamedTuple):
    """What was found: the digest of the leaf or block; None for a grid on record that is of a leaf of another rank."""

    digest: LeafDigest | bytes | CheckpointError | None
    non_finite: NonFinite


class LeafChecks:
    """The leaves of a checkpoint, or a part of them, held against digests."""

    def __init__(self, checkpoint: Checkpoint, expected: Expected) -> None:
        self._checkpoint = checkpoint
        self._names = document_names(checkpoint.tree.texts)
        self._expected = expected
        self._blocks: dict[LeafPath, Sequence[bytes]] = {}
        self.findings: list[reports.Finding] = []
        self.agreeing: list[str] = []
        self.not_checked: list[str] = []
        self.checked = 0
        """Leaves that were read whole, and have a digest."""
        self.non_finite: dict[str, NonFinite] = {}

    def read(
        self,
        chosen: Mapping[LeafPath, Parts],
        memory_bytes: int,
        listener: Listener | None,
        say: Say,
    ) -> None:
        """Read the chosen leaves, and compare those with a known digest."""
        tree, expected = self._checkpoint.tree, self._expected
        looks = planned_looks({path: self._look(path) for path in chosen}, memory_bytes, say)
        self._blocks = {path: blocks_of(self._checkpoint, path, expected) for path in chosen}
        every = [task for path, parts in chosen.items() for task in self._tasks(path, parts, looks)]
        meter = Meter(listener, "verifying", sum(map(self._bytes, every)))
        self._checkpoint.expect(chosen)

        def look(task: _Task) -> _Read:
            return self._read(task, looks.readings[task.path])

        costs = ((task, looks.readings[task.path].held_bytes) for task in every)
        found: dict[LeafPath, list[tuple[_Task, _Read]]] = {}
        for task, read in zip(every, in_order(look, costs, looks.limit_bytes), strict=True):
            found.setdefault(task.path, []).append((task, read))
            meter.advance(self._bytes(task), self._names[task.path])
        for path, reads in found.items():
            self._judge(path, reads, len(self._blocks[path]))
        present = {expected.key_of(path) for path in tree}
        taken = set(self._names.values())
        for key in expected.digests:
            if key not in present:
                path = LeafPath(map(decode, key.split("/")))
                name = path.exact_pattern if str(path) in taken else str(path)
                self.findings.append(reports.Finding(name, "missing"))

    @property
    def differs(self) -> bool:
        """True if a leaf is not as on record, and could be one that was saved over it: it can be read."""
        return any(found.what in OF_ANOTHER for found in self.findings)

    def _tasks(self, path: LeafPath, parts: Parts, looks: Looks[Reading]) -> Iterator[_Task]:
        """The blocks one by one where that decodes nothing twice, or where no more is wanted."""
        blocks = self._blocks[path]
        if len(blocks) < 2:
            yield _Task(path)
            return
        places = windows_of(self._checkpoint, path, self._expected)
        wanted = range(len(blocks)) if parts is None else parts
        is_joint = looks.readings[path].region != window_shape(places[0])
        if is_joint and len(wanted) == len(blocks):
            yield _Task(path)
            return
        yield from (_Task(path, block, places[block]) for block in wanted)

    def _bytes(self, task: _Task) -> int:
        spec = self._checkpoint.tree[task.path]
        return spec.bytes if task.block is None else block_bytes(spec, task.window)

    def _grid(self, path: LeafPath) -> tuple[int, ...] | None:
        """The recorded grid, if there is one."""
        expected = self._expected.digests.get(self._expected.key_of(path))
        return expected.grid if expected is not None and expected.grid else None

    def _look(self, path: LeafPath) -> Look[Reading]:
        spec, grid = self._checkpoint.tree[path], self._grid(path)
        grid = grid if grid is not None and len(grid) == len(spec.shape) else None
        text = self._names[path]
        return Look(text, (spec,), partial(digest_reading, spec, grid=grid))

    def _read(self, task: _Task, reading: Reading) -> _Read:
        spec, grid = self._checkpoint.tree[task.path], self._grid(task.path)
        counts: list[NonFinite] = []
        if grid is not None and len(grid) != len(spec.shape):
            return _Read(None, NonFinite())

        def look(values: Any) -> None:
            counts.append(count_non_finite(values))

        digest: LeafDigest | bytes | CheckpointError
        try:
            if task.block is None:
                digest = leaf_digest(self._checkpoint, task.path, spec, reading, grid, look)
            else:
                digest = self._block_digest(task, reading, look)
        except UnseenError:
            raise
        except CheckpointError as error:
            digest = error
        return _Read(digest, reduce(NonFinite.joined, counts, NonFinite()))

    def _block_digest(self, task: _Task, reading: Reading, look: Any) -> bytes:
        """SHA-256 of the values of a block, read in parts that follow each other in C order."""
        spec, record = self._checkpoint.tree[task.path], hashlib.sha256()
        shape = window_shape(task.window)
        part = tuple(map(min, reading.part, shape))
        for inside in windows(shape, part):
            window = tuple(
                slice(one.start + place.start, one.stop + place.start)
                for one, place in zip(inside, task.window, strict=True)
            )
            values = reading.read(self._checkpoint, task.path, spec, window)
            look(values)
            record.update(c_order_bytes(values))
            del values  # or it would stay while the next is read
        return record.digest()

    def _judge(self, path: LeafPath, reads: Sequence[tuple[_Task, _Read]], count: int) -> None:
        """Say what was found of a leaf of so many blocks, whole or of those that were read."""
        text = self._names[path]
        seen = reduce(NonFinite.joined, (read.non_finite for _, read in reads))
        if seen:
            self.non_finite[text] = seen
        (first, read), *_ = reads
        if first.block is None:
            assert not isinstance(read.digest, bytes)
            self._judge_whole(path, read.digest)
            return
        self.checked += len(reads) == count
        blocks, other = self._blocks[path], []
        for task, one in reads:
            place = f"[{', '.join(f'{axis.start}:{axis.stop}' for axis in task.window)}]"
            if isinstance(one.digest, CheckpointError):
                why = one.digest.problems[0].why or one.digest.problems[0].what
                self.findings.append(reports.Finding(text, "unreadable", here=f"{place}: {why}"))
            elif task.block is not None and one.digest != blocks[task.block]:
                other.append(place)
        if other:
            said = f"not what is on record: {listed(other, _MOST_BLOCKS)}"
            self.findings.append(reports.Finding(text, "values", detail=said))
        else:
            self._judge_sort(path, is_whole=len(reads) == count)

    def _judge_whole(self, path: LeafPath, found: LeafDigest | CheckpointError | None) -> None:
        text, spec = self._names[path], self._checkpoint.tree[path]
        expected = self._expected.digests.get(self._expected.key_of(path))
        if isinstance(found, CheckpointError):
            problem = found.problems[0]
            self.findings.append(
                reports.Finding(text, "unreadable", here=problem.why or problem.what)
            )
        elif expected is None and self._expected.is_complete:
            self.findings.append(reports.Finding(text, "extra", here=spec.type_text))
        elif expected is None:
            self.not_checked.append(text)
        else:
            self.checked += 1
            if found is None:
                self.findings.append(reports.Finding(text, "shape", here=spec.type_text))
            elif found.digest != expected.digest:
                self.findings.append(
                    reports.Finding(text, "values", here=found.digest, there=expected.digest)
                )
            else:
                self._judge_sort(path)

    def _judge_sort(self, path: LeafPath, *, is_whole: bool = True) -> None:
        """Hold what the digest does not tell of a leaf against what is known of it."""
        text, spec = self._names[path], self._checkpoint.tree[path]
        here = sort_of(spec.kind, spec.type_text)
        there = self._expected.sorts.get(self._expected.key_of(path), here)
        if here != there:
            self.findings.append(reports.Finding(text, "kind", here=here, there=there))
        elif is_whole:
            self.agreeing.append(text)
