"""Leaves whose old and new chunks cross are resharded within `--memory`, each chunk decoded a few times."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from surgery_cli import surgery
from surgery_cli.engine import grid
from surgery_cli.engine.budget import Budget
from surgery_cli.planning.reading import plan_from_document
from tests.layout.states import over, restored, save

VALUES = np.random.default_rng(5).standard_normal((1 << 10, 1 << 10), np.float32)
CHUNKS = 8
"""Of 512 KiB each: 128 rows."""
COLUMNS = {"mesh": {"fsdp": 16}, "spec": {"w": "None,fsdp"}}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "source"
    rows = over(jax.make_mesh((CHUNKS,), ("data",)), {"w": jax.numpy.asarray(VALUES)}, P("data"))
    save(path, rows, ocdbt=False)
    assert len(list((path / "w").glob("[0-9]*"))) == CHUNKS
    return path


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """All budgets of a run; blocks are as large as a chunk."""
    found: list[Budget] = []
    made = Budget.__init__

    def init(self: Budget, limit: int) -> None:
        made(self, limit)
        found.append(self)

    monkeypatch.setattr(Budget, "__init__", init)
    monkeypatch.setattr(grid.block_shape, "__defaults__", (1 << 18,))
    return found


def _read(source: Path, new: Path, document: dict[str, Any], memory: int) -> tuple[Any, int]:
    """The report of a run, and bytes that this process read from files meanwhile."""
    plan = plan_from_document(document)
    started = int(Path("/proc/self/io").read_text().split()[1])
    report = surgery.apply(
        str(source), str(new), plan, options=surgery.Options(memory_bytes=memory)
    )
    return report, int(Path("/proc/self/io").read_text().split()[1]) - started


def _restored(path: Path) -> Any:
    return restored(path, {"w": jax.numpy.zeros(VALUES.shape, VALUES.dtype)})["w"]


@pytest.mark.parametrize(
    ("edits", "memory"),
    [([], 2 << 20), ([{"op": "rescale", "at": "w", "by": 2.0}], 5 << 20)],
    ids=["alone", "edited"],
)
def test_crossed_chunks_stream_within_the_memory(
    source: Path, tmp_path: Path, budgets: list[Budget], edits: list[dict[str, Any]], memory: int
) -> None:
    document = {"edits": edits, "reshard": COLUMNS}
    little, read = _read(source, tmp_path / "little", document, memory)
    assert max(budget.peak for budget in budgets) <= memory
    assert not [note for note in little.consequences if "more than `--memory`" in note]
    assert little.bytes_read == VALUES.nbytes
    assert read < 7 * VALUES.nbytes  # the result is read, too
    much, read = _read(source, tmp_path / "much", document, 64 << 20)
    assert read < 3 * VALUES.nbytes
    assert little.digests == much.digests
    wanted = VALUES * 2 if edits else VALUES
    for new in ("little", "much"):
        np.testing.assert_array_equal(_restored(tmp_path / new), wanted)
        assert len(list((tmp_path / new / "w").glob("0.*"))) == 16


def test_what_is_decoded_often_is_said_with_the_memory_that_ends_it(
    source: Path, tmp_path: Path, budgets: list[Budget]
) -> None:
    report, _ = _read(source, tmp_path / "new", {"reshard": COLUMNS}, 7 << 18)
    (said,) = [note for note in report.notes if "decoded up to" in note]
    assert "'w' are decoded up to 6 times" in said
    assert "they are read once" in said
    assert max(budget.peak for budget in budgets) <= 7 << 18
    np.testing.assert_array_equal(_restored(tmp_path / "new"), VALUES)
