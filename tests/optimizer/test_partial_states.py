"""States that leave out some params: where a param gets another number of axes, the script may sort it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

from surgery_cli import surgery
from surgery_cli.operations.base import Operation
from surgery_cli.operations.expand import Expand
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.transpose import Transpose
from surgery_cli.plan import plan_of

PARAMS = {"w": np.ones((6, 4), np.float32), "b": np.ones(4, np.float32)}


def by_axes(matrix: Any, other: Any) -> Any:
    return lambda params: jax.tree.map(lambda p: matrix if p.ndim == 2 else other, params)


OPTIMIZERS = {
    "muon": contrib.muon(1e-3),
    "masked": optax.masked(optax.adam(1e-3), by_axes(matrix=True, other=False)),
    "partition": optax.partition(
        {"m": optax.adam(1e-3), "v": optax.sgd(1e-2, 0.9)}, by_axes("m", "v")
    ),
    "adam": optax.adam(1e-3),
}
EDITS: dict[str, tuple[Operation, bool]] = {
    "expand": (Expand(at="params/b", axis=0), True),
    "flatten": (Reshape(at="params/w", shape=(24,)), True),
    "as many axes": (Reshape(at="params/w", shape=(3, 8)), False),
    "transpose": (Transpose(at="params/w"), False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_another_number_of_axes_is_said_to_be_what_masks_may_go_by(
    name: str, tmp_path: Path
) -> None:
    transformation = OPTIMIZERS[name]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(
            tmp_path / "source", {"params": PARAMS, "opt_state": transformation.init(PARAMS)}
        )
    for operation, is_other in EDITS.values():
        report = surgery.plan(str(tmp_path / "source"), plan_of([operation]))
        said = [note for note in map(str, report.notes) if "another number of axes" in note]
        assert len(said) == (is_other and name != "adam"), (operation.name, report.notes)
        assert all("`--like-init` holds the result against it" in note for note in said)
