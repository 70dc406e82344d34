"""A list that Flax NNX stores as a dict with the keys 0, 1, …: an edit that leaves a gap says how to close it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx


class Model(nnx.Module):
    def __init__(self, layers: int) -> None:
        rngs = nnx.Rngs(layers)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(layers)])


def states(layers: int) -> Any:
    model = Model(layers)
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
    return {"model": nnx.state(model), "opt": nnx.state(optimizer)}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", states(4))
    return tmp_path / "saved"


def restored(path: Path, layers: int) -> Any:
    """Orbax's own restore into the state of the script."""
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, states(layers))
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def kernels(path: Path, layers: int) -> list[np.ndarray]:
    layers_there = restored(path, layers)["model"]["layers"]
    return [np.asarray(layers_there[n]["kernel"].get_value()) for n in range(layers)]


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (["delete", "model/layers/1"], [0, 2, 3]),
        (["delete", "model/layers/{0,2}"], [1, 3]),
        (["delete", "model/layers/0"], [1, 2, 3]),
        (["keep", "model/layers/{0,1,3}", "opt", "--force"], [0, 1, 3]),
    ],
)
def test_the_note_holds_the_edit_after_which_the_script_restores(
    surgery: Any, saved: Path, tmp_path: Path, edit: list[str], left: list[int]
) -> None:
    name, *at = edit
    whole = kernels(saved, 4)
    if name == "keep":  # twins that it does not name stay, as its page says
        at = [
            *at[:1],
            "opt/**/{count,step}",
            *(f"opt/opt_state/0/{m}/layers/{{0,1,3}}" for m in ("mu", "nu")),
        ]
        at += ["opt/step"]
    done = surgery(name, saved, tmp_path / "gap", *at, "--json")
    (note,) = [n for n in done.document["notes"] if "closes the gap" in n]
    assert note.startswith("'model/layers' keeps ")
    with pytest.raises(ValueError, match=r"(?i)mismatch|structure|missing|not match|key"):
        restored(tmp_path / "gap", len(left))

    said = surgery(name, saved, tmp_path / "again", *at).out
    option = said.partition("`rename` with `")[2].partition("`")[0]
    surgery("rename", tmp_path / "gap", tmp_path / "closed", *shlex.split(option))
    for found, number in zip(kernels(tmp_path / "closed", len(left)), left, strict=True):
        np.testing.assert_array_equal(found, whole[number])


@pytest.mark.parametrize(
    "edits",
    [
        [{"op": "delete", "at": "model/layers/3"}],
        [{"op": "delete", "at": "model/layers"}],
        [{"op": "rename", "at": "model/layers", "to": "model/blocks"}],
        [
            {"op": "delete", "at": "model/layers/2"},
            {"op": "rename", "at": "model/layers/3", "to": "model/layers/2"},
        ],
    ],
)
def test_where_no_gap_is_left_nothing_is_said(surgery: Any, saved: Path, edits: Any) -> None:
    plan = saved.parent / "plan.json"
    plan.write_text(json.dumps({"edits": edits}))
    document = surgery("plan", saved, plan, "--json").document
    assert not [note for note in document["notes"] if "gap" in note]


def test_numbers_that_were_no_list_before_are_none_afterwards(surgery: Any, tmp_path: Path) -> None:
    tree = {"params": {"by_step": {"10": np.ones(2), "20": np.ones(2), "30": np.ones(2)}}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", tree)
    document = surgery(
        "delete", tmp_path / "saved", tmp_path / "d", "params/by_step/20", "--json"
    ).document
    assert not [note for note in document["notes"] if "keeps" in note]
