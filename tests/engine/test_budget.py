"""Bytes in flight: counted, bounded, and the same values come out whatever the bound."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.engine import execution, measurements, stream
from surgery_cli.engine.budget import Budget, in_order
from surgery_cli.engine.grid import block_shape
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning import operation_from_options, plan_of

MIB = 1 << 20


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Leaves of 32 MiB and 1 MiB, in chunks of 256 KiB."""
    path = tmp_path_factory.mktemp("budget") / "source"
    random = np.random.default_rng(0)
    params = {
        "large": np.tile(random.standard_normal((256, 1024), np.float32), (32, 1)),
        **{f"small_{i}": random.standard_normal((256, 1024), np.float32) for i in range(8)},
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        arguments = {name: ocp.SaveArgs(chunk_byte_size=MIB // 4) for name in params}
        checkpointer.save(path, {"params": params}, save_args={"params": arguments})
    return path


class Watched(Budget):
    """Keeps every budget that a run makes."""

    made: ClassVar[list[Budget]] = []

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.made.append(self)


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    Watched.made = []
    monkeypatch.setattr(stream, "Budget", Watched)
    for module in (execution, measurements):
        monkeypatch.setattr(module, "block_shape", partial(block_shape, limit=2 * MIB))
    return Watched.made


def _apply(source: Path, destination: Path, memory: int, name: str, **fields: Any) -> Any:
    plan = plan_of([operation_from_options(name, fields)])
    options = surgery.Options(memory_bytes=memory)
    return surgery.apply(str(source), str(destination), plan, options=options)


def _params(path: Path) -> dict[str, np.ndarray]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)["params"]


EDITS: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "rescale": ({"at": "params", "by": 0.5}, lambda x: x * np.float32(0.5)),
    "normalize": (
        {"at": "params"},
        lambda x: (x / np.sqrt(np.square(x.astype(np.float64)).sum())).astype(np.float32),
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_leaf_larger_than_the_budget_is_edited_within_it(
    source: Path, tmp_path: Path, budgets: list[Budget], name: str
) -> None:
    fields, expected = EDITS[name]
    before = _params(source)

    _apply(source, tmp_path / "edited", 24 * MIB, name, **fields)

    after = _params(tmp_path / "edited")
    for leaf in ("large", "small_0", "small_7"):
        np.testing.assert_allclose(after[leaf], expected(before[leaf]), rtol=2e-7)
    (budget,) = budgets
    assert 12 * MIB < budget.peak <= 24 * MIB


def test_nothing_is_held_once_a_run_has_ended(
    source: Path, tmp_path: Path, budgets: list[Budget]
) -> None:
    _apply(source, tmp_path / "edited", 24 * MIB, "cast", at="params", to="bfloat16")

    (budget,) = budgets
    assert budget.take(budget.limit)


def test_values_and_digests_do_not_depend_on_the_budget(source: Path, tmp_path: Path) -> None:
    digests = [
        _apply(source, tmp_path / str(memory), memory, "normalize", at="params").digests
        for memory in (MIB, 4096 * MIB)
    ]

    assert digests[0] == digests[1]


def test_a_block_that_is_larger_than_the_budget_goes_alone(
    source: Path, tmp_path: Path, budgets: list[Budget]
) -> None:
    _apply(source, tmp_path / "edited", 1, "rescale", at="params/small_*", by=2.0)

    (budget,) = budgets
    # a leaf of 1 MiB: as stored, as read, as written and encoded, with the temporaries of one tile
    assert 4 * MIB <= budget.peak <= 24 * MIB


def test_a_refusal_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    params = {f"w_{i:02d}": np.full((64, 1024), 1.0 + i, np.float32) for i in range(40)}
    params["w_20"][:] = 0
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"params": params})

    with pytest.raises(ValueRefusal, match="w_20"):
        _apply(tmp_path / "source", tmp_path / "edited", MIB, "normalize", at="params")

    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("surgery")]


def test_results_come_in_the_order_of_the_tasks_within_the_limit() -> None:
    lock = threading.Lock()
    now: list[int] = []
    most = 0

    def work(number: int) -> int:
        nonlocal most
        with lock:
            now.append(number)
            most = max(most, len(now))
        with lock:
            now.remove(number)
        return number * number

    found = list(in_order(work, [(number, 10) for number in range(50)], 25))

    assert found == [number * number for number in range(50)]
    assert most <= 2
