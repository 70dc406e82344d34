"""What a report calls warm is no initial value: new params and those in another shape, under every optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from tests.optimizer.optax_registry import OPTIMIZERS
from tests.optimizer.policy_registry import CASES

NEEDS_MORE = {
    "backtracking",
    "complex_adam",
    "dpsgd",
    "freeze",
    "lbfgs",
    "sam",
    "selective_transform",
    "sophia",
}
"""What trains on more than gradients and a loss, or on params of other names only."""
EDITS: dict[str, dict[str, Any]] = {
    "add": {"op": "add", "at": "params/new", "like": "params/b", "init": "normal"},
    "add, other shape": {
        "op": "add", "at": "params/new/w", "like": "params/b/w", "init": "normal", "shape": "6, 9",
    },
    "reinit": {"op": "reinit", "at": "params/b/w", "init": "normal"},
    "reinit, other shape": {
        "op": "reinit", "at": "params/b/w", "init": "normal", "shape": "6, 9",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES.keys() - NEEDS_MORE - {"partition_3same"}))
def test_what_is_called_warm_holds_what_was_gathered(name: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)

    def drawn() -> Any:
        return {n: {"w": draws.normal(size=(6, 5)).astype(np.float32)} for n in "ab"}

    tx = optax.with_extra_args_support(OPTIMIZERS[name]())
    params = drawn()
    state, update = tx.init(params), jax.jit(lambda *x: tx.update(*x, value=np.float32(1)))
    for _ in range(5):
        updates, state = update(drawn(), state, params)
        params = optax.apply_updates(params, updates)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": state})
    squares = CASES[name].squares
    for n, edit in enumerate(EDITS.values()):
        document = {"edits": [{**edit, "optimizer": "warm"}], "optimizer_kind": CASES[name].kind}
        document = {key: value for key, value in document.items() if value}
        try:
            surgery.apply(str(tmp_path / "a"), str(tmp_path / str(n)), plan_from_document(document))
        except PlanError:
            continue  # with its reason: what starts at a setting, or knows no map
        preview = surgery.plan(str(tmp_path / "a"), plan_from_document(document))
        with ocp.PyTreeCheckpointer() as checkpointer:
            found = checkpointer.restore(tmp_path / str(n))
        rows = [row for row in preview.leaves if row.policy == "warm" and row.twin_of]
        assert bool(rows) <= bool(squares), (edit, [row.path for row in rows])
        for row in rows:
            value: Any = found
            for key in row.path.split("/"):
                value = value[int(key)] if isinstance(value, list) else value[key]
            field = next((key for key in row.path.split("/") if key in squares), None)
            is_placeholder = np.shape(value) == (1,) and name.startswith("adafactor")
            if field is not None and not is_placeholder:
                assert np.all(value != 0), (edit, row.path)
