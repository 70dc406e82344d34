"""What new params cost grows with them and those that stand there, and not with each pair of both."""

from pathlib import Path
from typing import Any

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.operations import new_leaves
from surgery_cli.planning import plan_from_document
from tests.steps import counted


def _saved(folder: Path, front: str, count: int) -> Path:
    params = {
        f"{front}_{n}": {"kernel": np.ones((3, 2), np.float32), "bias": np.ones(2, np.float32)}
        for n in range(count)
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        state = optax.adam(1e-3).init(params)
        checkpointer.save(folder / f"{front}{count}", {"params": params, "opt_state": state})
    return folder / f"{front}{count}"


@pytest.mark.parametrize("kind", ["adam", None], ids=["named", "unsaid"])
def test_params_that_come_cost_the_same_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    steps = []

    def counting(*arguments: Any, **named: Any) -> Any:
        found, count = counted(lambda: grown(*arguments, **named))
        steps.append(count)
        return found

    grown = new_leaves.grown
    monkeypatch.setattr(new_leaves, "grown", counting)
    for count in (20, 40, 80):
        donor = _saved(tmp_path, "new", count)
        merge = {"op": "merge", "at": "params", "with": str(donor), "both": "ours"}
        document = {"edits": [merge], **({"optimizer_kind": kind} if kind else {})}
        here = _saved(tmp_path, "old", count)
        surgery.plan(str(here), plan_from_document(document))
    once, twice, four_times = steps
    assert four_times - twice < 2.2 * (twice - once)
