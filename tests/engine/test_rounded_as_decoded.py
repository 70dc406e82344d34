"""Casts whose values the store rounds as it decodes them: the same values, refusals and records as by way of memory."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.compute.host import HostKit
from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning import plan_from_document
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.dtypes import FLOATS, Rounding

ALIKE = [
    Rounding(stored, to)
    for stored in FLOATS
    for to in FLOATS
    if HostKit().rounds_alike(Rounding(stored, to))
]
LOW_HALVES = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
"""What is below a bfloat16 in a float32: nothing, and less than, just, and more than half of a step."""


def test_there_is_a_rounding_of_the_stores_own() -> None:
    assert Rounding("float32", "bfloat16") in ALIKE


@pytest.mark.parametrize("rounding", ALIKE)
def test_it_is_the_rounding_of_the_kit(rounding: Rounding) -> None:
    """All that float32 can have above those halves; what comes of it depends on nothing else."""
    assert rounding.stored == "float32", "values of another width are to be drawn here"
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    values = np.concatenate([high | low for low in LOW_HALVES]).view(np.float32)
    ours = HostKit().cast(values, rounding.to)
    stores = np.asarray(ts.cast(ts.array(values), rounding.to).read().result())
    assert stores.dtype == numpy_dtype(rounding.to)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(ours.astype(np.float32))
    assert 380_000 < finite.sum() < values.size
    assert ours[finite].tobytes() == stores[finite].tobytes()
    assert not np.isfinite(stores[~finite].astype(np.float32)).any()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The leaves of which a block was read as it is stored."""
    found = []

    def counted(self: Checkpoint, path: Any, window: Any = None) -> Any:
        found.append(str(path))
        return as_it_was(self, path, window)

    as_it_was = Checkpoint.read
    monkeypatch.setattr(Checkpoint, "read", counted)
    return found


def saved(path: Path, **leaves: np.ndarray) -> str:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": {name: jnp.asarray(v) for name, v in leaves.items()}})
    return str(path)


def cast(source: str, new: Path, to: str = "bfloat16", **fields: Any) -> dict[str, np.ndarray]:
    edit = {"op": "cast", "at": "params/**", "to": to, **fields}
    surgery.apply(source, str(new), plan_from_document({"edits": [edit]}))
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(new)
    return {name: np.asarray(value) for name, value in restored["params"].items()}


NORMAL = np.random.default_rng(0).normal(size=(300, 40)).astype(np.float32)


def test_what_is_stored_is_never_in_memory(tmp_path: Path, read: list[str]) -> None:
    found = cast(saved(tmp_path / "a", w=NORMAL), tmp_path / "b")
    assert found["w"].tobytes() == NORMAL.astype(ml_dtypes.bfloat16).tobytes()
    assert read == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_looked_at_as_it_is_stored(
    tmp_path: Path, read: list[str], bad: float
) -> None:
    values = NORMAL.copy()
    values[7, 7] = bad
    found = cast(saved(tmp_path / "a", w=values, v=NORMAL), tmp_path / "b")
    assert found["w"].tobytes() == values.astype(ml_dtypes.bfloat16).tobytes()
    assert set(read) == {"params/w"}


def test_what_would_become_infinite_is_refused(tmp_path: Path) -> None:
    values = NORMAL.copy()
    values[7, 7] = 3.4e38
    with pytest.raises(ValueRefusal, match="does not fit bfloat16"):
        cast(saved(tmp_path / "a", w=values), tmp_path / "b")


def test_values_that_may_become_zero_are_looked_at(tmp_path: Path, read: list[str]) -> None:
    with pytest.raises(ValueRefusal, match="does not fit float16"):
        cast(saved(tmp_path / "a", w=abs(NORMAL) * 1e-9), tmp_path / "b", to="float16")
    assert "params/w" in read


def test_what_is_on_record_is_held_against_it(tmp_path: Path, read: list[str]) -> None:
    """A digest on record is one of the values as they are stored."""
    source = saved(tmp_path / "a", w=NORMAL)
    surgery.seal(source)
    read.clear()
    cast(source, tmp_path / "b")
    assert set(read) == {"params/w"}
