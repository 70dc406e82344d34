"""Leaves read within a bound: every element once, in the order that is asked for, chunks decoded as often as said."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.engine import bounded_reads, grid
from surgery_cli.engine.bounded_reads import Reading, block_reading, met_by, pair_reading
from surgery_cli.engine.digests import Digester, digest_reading, leaf_digest
from surgery_cli.engine.grid import windows
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

W = LeafPath(("w",))
MIB = 1 << 20
SEEDS = range(150)


@pytest.fixture
def _no_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reads, "LEAST_BYTES", 16)


def _shape(random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in random.integers(1, 12, size=random.integers(1, 4)))


def _grid(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(random.integers(1, n + 1)) for n in shape)


def _leaf(random: np.random.Generator, shape: tuple[int, ...]) -> LeafSpec:
    """A leaf of some chunks or none."""
    chunks = _grid(random, shape) if random.random() < 0.9 else None
    return LeafSpec(
        kind=LeafKind.ARRAY, shape=shape, dtype="float32", chunk_shape=chunks, write_shape=chunks
    )


class Chunked:
    """Values in memory, and how often a chunk was read, had none been kept."""

    def __init__(self, spec: LeafSpec, values: np.ndarray) -> None:
        self.values = values
        self.chunks = spec.chunk_shape or spec.shape
        self.read_of: Counter[tuple[int, ...]] = Counter()

    def read(self, path: LeafPath, window: Any = None) -> np.ndarray:
        assert path == W
        for part in met_by(window, self.chunks):
            self.read_of[_start(part, self.chunks)] += 1
        return self.values[window].copy()

    def assert_read_as_said(self, reading: Reading) -> None:
        if reading.is_by_chunk or reading.times == 1 == max(self.read_of.values()):
            assert max(self.read_of.values()) <= reading.times


def _start(part: tuple[slice, ...], blocks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one.start // n * n for one, n in zip(part, blocks, strict=True))


@pytest.mark.usefixtures("_no_least")
@pytest.mark.parametrize("is_joint", [False, True])
def test_blocks_of_any_grid_get_their_values_in_order_whatever_the_bound(is_joint: bool) -> None:
    is_split = 0
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = _shape(random)
        spec, blocks = _leaf(random, shape), _grid(random, shape)
        values = np.arange(spec.size, dtype=np.float32).reshape(shape)
        source = Chunked(spec, values)
        limit = int(random.integers(1, 3 * spec.bytes))
        reading = block_reading(spec, limit, blocks, is_joint=is_joint)
        seen: dict[tuple[int, ...], list[float]] = {}
        for _, parts in reading.windows(shape):
            for part in parts:
                np.testing.assert_array_equal(reading.read(source, W, spec, part), values[part])
                for piece in met_by(part, blocks):
                    seen.setdefault(_start(piece, blocks), []).extend(values[piece].reshape(-1))
        assert seen == {
            tuple(one.start for one in block): list(values[block].reshape(-1))
            for block in windows(shape, blocks)
        }, seed
        source.assert_read_as_said(reading)
        is_split += reading.part != blocks
    assert is_split > len(SEEDS) // 3


@pytest.mark.usefixtures("_no_least")
def test_two_leaves_are_read_beside_each_other_whatever_their_chunks_and_the_bound() -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = _shape(random)
        specs = [_leaf(random, shape) for _ in range(2)]
        values = np.arange(specs[0].size, dtype=np.float32).reshape(shape)
        found = pair_reading(*specs, int(random.integers(1, 6 * specs[0].bytes)))
        covered = np.zeros(shape, int)
        for side, spec in zip(found, specs, strict=True):
            source = Chunked(spec, values)
            for part in windows(shape, side.part):
                covered[part] += 1
                np.testing.assert_array_equal(side.read(source, W, spec, part), values[part])
            source.assert_read_as_said(side)
        assert (covered == 2).all(), seed


@pytest.mark.usefixtures("_no_least")
def test_a_digest_does_not_depend_on_how_a_leaf_is_read() -> None:
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        shape = _shape(random)
        spec, blocks = _leaf(random, shape), _grid(random, shape)
        values = random.standard_normal(shape).astype(np.float32)
        expected = Digester(spec, blocks)
        for block in windows(shape, blocks):
            expected.add(block, np.ascontiguousarray(values[block]))
        reading = digest_reading(spec, int(random.integers(1, 3 * spec.bytes)), blocks)
        assert leaf_digest(Chunked(spec, values), W, spec, reading, blocks) == expected.result()


def _saved(path: Path, values: np.ndarray, chunks: tuple[int, ...]) -> str:
    """A checkpoint as Orbax writes it without OCDBT, of one leaf in chunks of any shape."""
    import orbax.checkpoint as ocp

    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave({"w": np.zeros(values.shape, np.float32)}))
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(path / "w")},
        "metadata": {
            "shape": values.shape,
            "chunks": chunks,
            "dtype": "<f4",
            "compressor": {"id": "zstd", "level": 1},
            "dimension_separator": ".",
        },
    }
    ts.open(spec, create=True, delete_existing=True).result().write(values).result()
    return str(path)


def _read_by(*command: Any, **settings: Any) -> tuple[Any, list[str], int]:
    """What a look finds, what it says, and the bytes that this process read from files meanwhile."""

    def count() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    said: list[str] = []
    before = count()
    look, *words = command
    found = look(*words, say=said.append, **settings)
    return found, said, count() - before


def test_leaves_of_chunks_that_lie_across_are_compared_within_the_memory_and_what_that_costs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_reads, "LEAST_BYTES", MIB // 32)
    monkeypatch.setattr(grid.block_shape, "__defaults__", (MIB // 16,))
    values = np.random.default_rng(7).standard_normal((512, 1024), np.float32)
    other = values.copy()
    other[300, 700] += 1
    rows = _saved(tmp_path / "rows", values, (16, 1024))
    columns = _saved(tmp_path / "columns", other, (512, 32))
    little, said, read = _read_by(surgery.diff, rows, columns, memory_bytes=MIB // 2)
    assert [change.where for change in little.changed] == [(300, 700)]
    (note,) = said
    found = re.fullmatch(
        r"the stored chunks of 'w' are decoded up to (\d+) times, as they lie across what is read at once: with"
        r" `--memory (\d+)MiB` they are decoded once",
        note,
    )
    assert found is not None
    times = int(found[1])
    assert 4 < times < 20
    assert values.nbytes < read < 2 * times * values.nbytes
    much, said, read = _read_by(surgery.diff, rows, columns, memory_bytes=int(found[2]) * MIB)
    assert said == []
    assert much == little
    assert read < 2.2 * values.nbytes


def test_a_digest_over_the_grid_of_another_layout_is_taken_within_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_reads, "LEAST_BYTES", MIB // 8)
    values = np.random.default_rng(7).standard_normal((512, 1024), np.float32)
    one = _saved(tmp_path / "one", values, values.shape)
    manifest = tmp_path / "digests.json"
    surgery.seal(one, to=manifest)
    for chunks in ((4, 1024), (512, 8), (64, 64)):
        like = _saved(tmp_path / f"{chunks[0]}", values, chunks)
        for memory in (MIB // 2, MIB, 16 * MIB):
            found, _, _ = _read_by(
                surgery.verify, like, like_manifest=manifest, memory_bytes=memory
            )
            values_differ = [one for one in found.findings if one.what == "values"]
            assert (values_differ, found.checked) == ([], 1), found.findings
