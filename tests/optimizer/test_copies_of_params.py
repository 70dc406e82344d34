"""Copies of the params inside of optimizer states are 0 wherever an edit makes the params 0, or training undoes it."""

from __future__ import annotations

import json
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
from surgery_cli.operations.mask import Mask
from surgery_cli.operations.prune import Prune
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import operation_from_options, plan_of
from tests.installed import installed

PARAMS = {"w": np.linspace(1, 2, 24, dtype=np.float32).reshape(6, 4)}
COPIES = {
    "schedule_free": (lambda: contrib.schedule_free_adamw(1e-3), "z"),
    "mechanic": (lambda: contrib.mechanize(optax.sgd(0.1)), "x0"),
    "prodigy": (contrib.prodigy, "params0"),
    "dog": (lambda: contrib.dog(1.0), "init_params"),
    "dowg": (contrib.dowg, "init_params"),
    "madgrad": (lambda: installed(contrib, "madgrad")(1e-3), "x0"),
    "cocob": (contrib.cocob, "init_particles"),
}
FACTORS = np.array([0, 3, -2, 1], np.float32)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint with a state of every optimizer that keeps copies."""
    root = tmp_path_factory.mktemp("copies")
    tree = {"params": PARAMS}
    for name, (make, _) in COPIES.items():
        tree[name] = {"opt_state": make().init(PARAMS)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(root / "states", tree)
    np.save(root / "factors.npy", FACTORS)
    return root


@pytest.mark.parametrize("edit", ["rescale", "mask", "prune", "replace"])
def test_they_are_what_the_params_become(states: Path, tmp_path: Path, edit: str) -> None:
    file = str(states / "factors.npy")
    edits: dict[str, tuple[Operation, Any]] = {
        "rescale": (Rescale(at="params", by=file), PARAMS["w"] * FACTORS),
        "mask": (Mask(at="params", by=file), PARAMS["w"] * (FACTORS != 0)),
        "prune": (
            Prune(at="params", sparsity=0.5),
            np.where(PARAMS["w"] > np.median(PARAMS["w"]), PARAMS["w"], 0),
        ),
        "replace": (Replace(at="params", with_=0.0), np.zeros_like(PARAMS["w"])),
    }
    operation, wanted = edits[edit]
    surgery.apply(str(states / "states"), str(tmp_path / "new"), plan_of([operation]))
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")
    np.testing.assert_array_equal(found["params"]["w"], wanted)
    for name, (_, field) in COPIES.items():
        copies = [
            leaf
            for path, leaf in jax.tree.leaves_with_path(found[name])
            if f"'{field}'" in jax.tree_util.keystr(path)
        ]
        assert copies, name
        for copy in copies:
            np.testing.assert_array_equal(copy, wanted, err_msg=name)


@pytest.mark.parametrize("shape", ["", "6,5"], ids=["same shape", "another"])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_takes_new_values_with_its_param_is_not_removed(
    tmp_path: Path, name: str, shape: str
) -> None:
    make, field = COPIES[name]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", {"params": PARAMS, "opt_state": make().init(PARAMS)})
    fields = {"at": "params/w", "init": "lecun_normal"} | ({"shape": shape} if shape else {})
    plan = plan_of([operation_from_options("reinit", fields)])
    kind = "schedule_free_adamw" if name == "schedule_free" else None
    options = surgery.Options(optimizer="reset", optimizer_kind=kind)
    done = surgery.apply(str(tmp_path / "state"), str(tmp_path / "new"), plan, options=options)
    assert done.removed == []
    assert not [note for note in done.notes if "removed values" in note]
    assert json.loads((tmp_path / "new" / "surgery.json").read_text())["removed"] == []
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")
    copies = [
        leaf
        for path, leaf in jax.tree.leaves_with_path(found["opt_state"])
        if f"'{field}'" in jax.tree_util.keystr(path)
    ]
    assert copies
    for copy in copies:
        np.testing.assert_array_equal(copy, found["params"]["w"])
