"""Slots of a script's own optimizer that come from donors with their params: what is said holds on either side."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from ruamel.yaml import YAML

from surgery_cli import surgery
from surgery_cli.planning.reading import plan_from_document

PLACES = {"in the state": "opt_state/", "beside it": "adam/", "at the top": ""}
EVERY = pytest.mark.parametrize("prefix", PLACES.values(), ids=PLACES)
LAYERS = [f"layers_{n}" for n in range(3)]


def params(seed: int) -> Any:
    draws = np.random.default_rng(seed)
    shapes = {"w": (4, 3), "b": (3,)}
    return {
        layer: {key: draws.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
        for layer in LAYERS
    }


def state(prefix: str, seed: int = 0, count: int = 9) -> dict[str, Any]:
    """Params with moments of their own, and a counter beside these."""
    m = jax.tree.map(lambda x: x * np.float32(0.01), params(seed + 1))
    v = jax.tree.map(lambda x: x * x * np.float32(1e-4), params(seed + 2))
    held = {"m": m, "v": v, "t": np.int32(count)}
    return {"params": params(seed), **({prefix.strip("/"): held} if prefix else held)}


def moments(tree: Any, prefix: str) -> Any:
    return tree[prefix.strip("/")] if prefix else tree


def told(prefix: str, **starts: float) -> dict[str, Any]:
    return {
        f"{prefix}m": {"power": -1, **starts},
        f"{prefix}v": {"power": -2, "even": True, "second_moment": True, **starts},
    }


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def restore(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def applied(source: Path | str, goal: Path, document: Mapping[str, Any]) -> Any:
    return surgery.apply(str(source), str(goal), plan_from_document(dict(document)))


def layer_from(donor: Path | str, of: str = "layers_2", **fields: Any) -> dict[str, Any]:
    edit = {"op": "replace", "at": "params/layers_0", "with": str(donor), "from": f"params/{of}"}
    return edit | fields


def assert_layer(found: Any, prefix: str, of: Any, layer: str) -> None:
    for key in ("m", "v"):
        for name in ("w", "b"):
            np.testing.assert_array_equal(
                moments(found, prefix)[key]["layers_0"][name],
                moments(of, prefix)[key][layer][name],
            )


@EVERY
@pytest.mark.parametrize("starts", [{}, {"fresh": 0.0}], ids=["no start", "start"])
@pytest.mark.parametrize("policy", [None, "transform"])
def test_slots_of_the_very_same_checkpoint_come_with_its_params(
    tmp_path: Path, prefix: str, starts: dict[str, float], policy: str | None
) -> None:
    tree = state(prefix)
    source = save(tmp_path / "a", tree)
    fields = {} if policy is None else {"optimizer": policy}
    edit = layer_from(source, **fields)
    report = applied(source, tmp_path / "b", {"slots": told(prefix, **starts), "edits": [edit]})
    assert_layer(restore(tmp_path / "b"), prefix, tree, "layers_2")
    assert any("4 slots come from" in str(note) for note in report.notes)
    assert not any("not taken" in str(note) for note in report.notes)


@EVERY
def test_so_do_those_of_a_step_of_a_run_whose_step_is_edited(tmp_path: Path, prefix: str) -> None:
    tree = state(prefix)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.PyTreeSave(tree))
    run = tmp_path / "run"
    edit = layer_from(f"{run}@1")
    applied(run, tmp_path / "b", {"slots": told(prefix, fresh=0), "edits": [edit]})
    with ocp.CheckpointManager(tmp_path / "b") as manager:
        found = manager.restore(1, args=ocp.args.PyTreeRestore())
    assert_layer(found, prefix, tree, "layers_2")


@EVERY
@pytest.mark.parametrize("starts", [{}, {"fresh": 0.0}], ids=["no start", "start"])
def test_another_checkpoint_says_what_its_slots_are_by_the_plan_that_the_note_has(
    tmp_path: Path, prefix: str, starts: dict[str, float]
) -> None:
    """`slots:` are said of the checkpoint that is edited: of the donor its own record says it, and nothing else."""
    tree, other = state(prefix), state(prefix, seed=5)
    source, donor = save(tmp_path / "a", tree), save(tmp_path / "donor", other)
    plan = {"slots": told(prefix, **starts), "edits": [layer_from(donor, "layers_0")]}
    report = applied(source, tmp_path / "b", plan)
    (note,) = [str(one) for one in report.notes if "not taken" in str(one)]
    found = moments(restore(tmp_path / "b"), prefix)
    if starts:
        assert "4 slots are not taken" in note
        assert "but restart:" in note
        assert not found["m"]["layers_0"]["w"].any()
    else:
        assert "but 2 restart and 2 stay as they are:" in note
        np.testing.assert_array_equal(
            found["m"]["layers_0"]["w"], moments(tree, prefix)["m"]["layers_0"]["w"]
        )
    old = moments(tree, prefix)["v"]["layers_0"]["w"]
    np.testing.assert_allclose(found["v"]["layers_0"]["w"], np.full((4, 3), old.mean()), rtol=1e-6)

    line, slots, edit = re.findall(r"`([^`]*)`", note)
    assert shlex.split(line) == ["surgery", "apply", str(donor), "DST", "PLAN"]
    read = YAML(typ="safe")
    said = {**read.load(slots), "edits": [read.load(edit)]}
    copy = tmp_path / "copy"
    applied(donor, copy, said)
    taken = {**plan, "edits": [layer_from(copy, "layers_0")]}
    report = applied(source, tmp_path / "c", taken)
    assert any("4 slots come from" in str(one) for one in report.notes)
    assert_layer(restore(tmp_path / "c"), prefix, other, "layers_0")
    again = applied(
        source,
        tmp_path / "d",
        {**taken, "edits": [layer_from(copy, "layers_0", optimizer="transform")]},
    )
    assert again.edits[0].twins == {"donor": 4}


@EVERY
def test_a_counter_beside_them_that_stands_elsewhere_there_keeps_them_apart(
    tmp_path: Path, prefix: str
) -> None:
    """Nothing says whether it counts their steps; where it comes with them, both fit whatever it counts."""
    tree, other = state(prefix), state(prefix, seed=5, count=5000)
    source = save(tmp_path / "a", tree)
    raw, donor = save(tmp_path / "raw", other), tmp_path / "donor"
    slots = told(prefix, fresh=0)
    by_one = {"op": "rescale", "at": "params/layers_0/w", "by": 1}
    applied(raw, donor, {"slots": slots, "edits": [by_one]})
    edit = layer_from(donor, "layers_0")
    report = applied(source, tmp_path / "b", {"slots": slots, "edits": [edit]})
    (note,) = [str(one) for one in report.notes if "not taken" in str(one)]
    assert f"'{prefix}t' beside them is 5,000 there and 9 here" in note
    assert not moments(restore(tmp_path / "b"), prefix)["m"]["layers_0"]["w"].any()

    both = {"op": "replace", "at": ["params", f"{prefix}t"], "with": str(donor)}
    applied(source, tmp_path / "c", {"slots": slots, "edits": [both]})
    found = restore(tmp_path / "c")
    jax.tree.map(np.testing.assert_array_equal, found, other)


@EVERY
def test_new_params_get_the_slots_of_those_of_the_same_checkpoint_that_they_are(
    tmp_path: Path, prefix: str
) -> None:
    tree = state(prefix)
    source = save(tmp_path / "a", tree)
    edits = [
        {"op": "delete", "at": "params/layers_0"},
        {"op": "merge", "at": "params", "with": str(source), "both": "ours"},
    ]
    applied(source, tmp_path / "b", {"slots": told(prefix, fresh=0), "edits": edits})
    jax.tree.map(np.testing.assert_array_equal, restore(tmp_path / "b"), tree)
