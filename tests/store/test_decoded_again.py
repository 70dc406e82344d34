"""Chunks whose elements go to places far apart: how often they are decoded is foretold, and memory helps."""

import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.engine import grid
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.reports import Preview

VALUES = np.random.default_rng(5).standard_normal((1 << 12, 256), np.float32)
CHUNKS = 16
"""Of 256 KiB each."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoded") / "source"
    tree = {"w": jax.numpy.asarray(VALUES)}
    args = ocp.args.PyTreeSave(tree, save_args={"w": ocp.SaveArgs(chunk_byte_size=1 << 18)})
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
        checkpointer.save(path, args=args)
    assert len(list((path / "w").glob("[0-9]*"))) == CHUNKS
    return path


@pytest.fixture(autouse=True)
def _blocks_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid.block_shape, "__defaults__", (1 << 18,))


def _again(document: Preview) -> list[str]:
    return [note for note in document.notes if "decoded up to" in note]


def _read(source: Path, new: Path, edit: dict[str, Any], memory: int) -> tuple[Any, int]:
    """The report of a run, and bytes that this process read from files meanwhile."""
    plan = plan_from_document({"edits": [edit]})
    given = surgery.Options(memory_bytes=memory)
    before = surgery.plan(str(source), plan, options=given)
    started = int(Path("/proc/self/io").read_text().split()[1])
    report = surgery.apply(str(source), str(new), plan, options=given)
    read = int(Path("/proc/self/io").read_text().split()[1]) - started
    assert before.notes == report.notes
    assert before.bytes_read == report.bytes_read
    return report, read


def test_what_is_decoded_again_and_again_is_said_and_read_once_with_the_memory_that_is_named(
    source: Path, tmp_path: Path
) -> None:
    order = list(range(len(VALUES)))
    random.Random(1).shuffle(order)
    edit = {"op": "permute", "at": "w", "index": order}
    little, read = _read(source, tmp_path / "little", edit, 4 << 20)
    (said,) = _again(little)
    assert said == (
        f"the stored chunks of 'w' are decoded up to {CHUNKS} times, as their elements go to places far apart:"
        " with `--memory 21MiB` they are read once"
    )
    assert read > 0.8 * CHUNKS * VALUES.nbytes
    much, read = _read(source, tmp_path / "much", edit, 21 << 20)
    assert _again(much) == []
    assert much.bytes_read == VALUES.nbytes
    assert read < 3 * VALUES.nbytes  # and the result, to verify it
    for new in ("little", "much"):
        with ocp.PyTreeCheckpointer() as checkpointer:
            np.testing.assert_array_equal(checkpointer.restore(tmp_path / new)["w"], VALUES[order])


@pytest.mark.parametrize(
    "edit",
    [
        {"op": "transpose"},
        {"op": "reshape", "shape": [1 << 6, 1 << 14]},
        {"op": "slice", "slices": "100:4000"},
        {"op": "slice", "slices": "::-1"},
        {"op": "pad", "axis": 0, "before": 100},
        {"op": "permute", "index": [*range(2048, 4096), *range(2048)]},
    ],
    ids=lambda edit: edit["op"],
)
def test_what_comes_in_order_is_decoded_a_few_times_at_most(
    source: Path, tmp_path: Path, edit: dict[str, Any]
) -> None:
    report, read = _read(source, tmp_path / "new", {**edit, "at": "w"}, 4 << 20)
    assert _again(report) == []
    assert read < 5 * VALUES.nbytes  # the result is read, too
