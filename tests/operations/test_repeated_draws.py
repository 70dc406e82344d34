"""Random values depend on seed and path alone: where they are added to ones drawn before, the preview says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.operations.base import Operation
from surgery_cli.operations.noise import Noise
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.shrink_and_perturb import ShrinkAndPerturb
from surgery_cli.planning import plan_of

W = "params/w"
REINIT = Reinit(at=W, init="normal")
NOISE = Noise(at=W, std=0.1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        params = {"w": np.ones((30, 20), np.float32), "v": np.ones((30, 20), np.float32)}
        checkpointer.save(tmp_path / "source", {"params": params})
    return tmp_path / "source"


def said(source: Path, *edits: Operation, **shared: Any) -> list[str]:
    report = surgery.plan(str(source), plan_of(edits, **shared))
    return [note for note in map(str, report.notes) if "random values" in note]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (REINIT, NOISE, True),
        (NOISE, NOISE, True),
        (NOISE, ShrinkAndPerturb(at=W, shrink=0.5, std=0.1), True),
        (NOISE, Noise(at=W, std=0.1, seed=1), False),
        (NOISE, REINIT, False),
        (NOISE, Noise(at="params/v", std=0.1), False),
        (Rescale(at=W, by=2.0), NOISE, False),
    ],
)
def test_in_one_plan_and_in_two_runs(
    source: Path, tmp_path: Path, first: Operation, second: Operation, is_same: bool
) -> None:
    together = said(source, first, second)
    surgery.apply(str(source), str(tmp_path / "first"), plan_of([first]))
    apart = said(tmp_path / "first", second)
    assert [len(together), len(apart)] == [is_same, is_same]
    if is_same:
        assert "'params/w', seed 0, are drawn twice in this plan" in together[0]
        assert "drawn by an earlier run, too" in apart[0]


def test_a_run_further_back_counts_and_another_seed_of_the_plan_does_not(
    source: Path, tmp_path: Path
) -> None:
    edits: list[list[Operation]] = [[NOISE], [Rescale(at=W, by=2.0)]]
    for number, edit in enumerate(edits):
        target = tmp_path / str(number)
        surgery.apply(str(source), str(target), plan_of(edit, seed=4))
        source = target
    assert said(source, NOISE, seed=4)
    assert not said(source, NOISE)


def test_other_places_draw_other_values(source: Path) -> None:
    assert not said(source, NOISE, Rename(at=W, to="params/u"), Noise(at="params/u", std=0.1))
