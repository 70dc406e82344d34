"""Values that only move are new nowhere; what is computed of them is judged."""

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.engine import guard
from surgery_cli.errors import ValueRefusal
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_of
from surgery_cli.settings.reshard import Reshard


@pytest.fixture
def source(tmp_path: Path) -> Path:
    values = np.arange(12, dtype=np.float32).reshape(3, 4) * 1e30
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": values})
    return tmp_path / "source"


def test_what_only_moves_is_not_looked_at(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "check_finite", lambda *_: pytest.fail("looked at"))
    surgery.apply(str(source), str(tmp_path / "moved"), plan_of([Transpose(at="w")]))
    surgery.apply(str(source), str(tmp_path / "cut"), plan_of([], reshard=Reshard(chunk_bytes=16)))


def test_what_is_computed_of_values_that_moved_is_judged(source: Path, tmp_path: Path) -> None:
    plan = plan_of([Transpose(at="w"), Rescale(at="w", by=1e9)])
    with pytest.raises(ValueRefusal, match="non-finite"):
        surgery.apply(str(source), str(tmp_path / "new"), plan)
