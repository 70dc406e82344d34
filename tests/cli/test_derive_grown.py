"""Leaves that have only got longer: what stands at the same path is where they come from, before anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

GROWN = ["embed/embedding", "head/kernel", "head/bias"]


def params(vocabulary: int, layers: int, seed: int) -> dict[str, Any]:
    draws = np.random.default_rng(seed)

    def drawn(*shape: int) -> Any:
        return draws.normal(size=shape).astype(np.float32)

    blocks = {
        f"layers_{n}": {"up": {"kernel": drawn(16, 32)}, "down": {"kernel": drawn(32, 16)}}
        for n in range(layers)
    }
    head = {"kernel": drawn(16, vocabulary), "bias": drawn(vocabulary)}
    return {"embed": {"embedding": drawn(vocabulary, 16)}, **blocks, "head": head}


def saved(path: Path, tree: Any) -> Path:
    state = optax.adam(0.1).init(tree)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": tree, "opt_state": state})
    return path


def leaf(tree: Any, path: str) -> Any:
    for key in path.split("/"):
        tree = tree[key]
    return tree


def grown(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new tree with the old numbers as far as both go."""
    return {
        key: grown(old[key], value) if isinstance(value, dict) else _with_begin(old[key], value)
        for key, value in new.items()
    }


def _with_begin(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    whole = new.copy()
    whole[tuple(slice(0, size) for size in old.shape)] = old
    return whole


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_what_has_its_pair_by_values_is_offered_no_other_leaf(
    surgery: Any, tmp_path: Path, layers: int
) -> None:
    old = params(40, 4, 0)
    new = grown(old, params(48, layers, 1))
    a, b = saved(tmp_path / "a", old), saved(tmp_path / "b", new)
    document = surgery("derive", a, b, "--json").document
    told = {
        gap["path"]: gap
        for gap in document["gaps"]
        if "holds" in gap["what"] or "hold" in gap["what"]
    }
    assert set(told) == {f"params/{path}" for path in GROWN}
    assert not [gap for gap in told.values() if gap.get("perhaps")]

    edits = [edit for edit in document["plan"]["edits"] if edit["op"] == "resize"]
    (tmp_path / "plan.json").write_text(json.dumps({"edits": edits}))
    surgery("apply", a, tmp_path / "c", tmp_path / "plan.json")
    with ocp.PyTreeCheckpointer() as checkpointer:
        made = checkpointer.restore(tmp_path / "c")["params"]
    for path in GROWN:
        was, now = leaf(old, path), leaf(made, path)
        assert now.shape == leaf(new, path).shape
        np.testing.assert_array_equal(now[tuple(slice(0, n) for n in was.shape)], was)


@pytest.mark.parametrize("layers", [3, 4])
def test_without_values_in_common_the_same_path_is_the_first_candidate(
    surgery: Any, tmp_path: Path, layers: int
) -> None:
    a = saved(tmp_path / "a", params(40, 4, 0))
    b = saved(tmp_path / "b", params(48, layers, 1))
    document = surgery("derive", a, b, "--json").document
    perhaps = {gap["path"]: gap.get("perhaps", []) for gap in document["gaps"]}
    for path in GROWN:
        assert perhaps[f"params/{path}"][0].startswith(f"params/{path} (40 places")
    # what an optimizer gathered comes from no param
    assert not [path for path, texts in perhaps.items() if path.startswith("opt_state") and texts]


BODY = {"body": {"kernel": np.arange(200, dtype=np.float32).reshape(10, 20)}}
"""What both sides have, so that they have values in common."""


def grown_by(bias: np.ndarray, change: str) -> np.ndarray:
    more = {"zeros": [0] * 4, "ones": [1] * 4, "others": [7, 8, 9, 10], "shorter": []}[change]
    return np.concatenate([bias[:5] if change == "shorter" else bias, more]).astype(np.float32)


@pytest.mark.parametrize("change", ["zeros", "ones", "shorter"])
def test_a_short_vector_that_grew_at_its_path_is_found(
    surgery: Any, tmp_path: Path, change: str
) -> None:
    """The kernel beside it was found, and its bias of eight numbers was a gap."""
    bias = np.random.default_rng(0).normal(size=8).astype(np.float32)
    new = {"head": {"bias": grown_by(bias, change)}, **BODY}
    a, b = saved(tmp_path / "a", {"head": {"bias": bias}, **BODY}), saved(tmp_path / "b", new)
    document = surgery("derive", a, b, "--json").document
    assert not [gap for gap in document["gaps"] if gap["path"] == "params/head/bias"]
    (tmp_path / "plan.json").write_text(json.dumps({"edits": document["plan"]["edits"]}))
    surgery("apply", a, tmp_path / "c", tmp_path / "plan.json")
    with ocp.PyTreeCheckpointer() as checkpointer:
        made = checkpointer.restore(tmp_path / "c")["params"]["head"]["bias"]
    np.testing.assert_array_equal(made, new["head"]["bias"])


@pytest.mark.parametrize("why", ["other path", "one number", "few", "others"])
def test_a_short_vector_that_may_be_alike_by_chance_stays_a_gap(
    surgery: Any, tmp_path: Path, why: str
) -> None:
    bias = np.random.default_rng(0).normal(size=8).astype(np.float32)
    bias = {"one number": np.ones(8, np.float32), "few": bias[:3]}.get(why, bias)
    name = "tail" if why == "other path" else "head"
    new = {name: {"bias": grown_by(bias, "others" if why == "others" else "zeros")}, **BODY}
    a, b = saved(tmp_path / "a", {"head": {"bias": bias}, **BODY}), saved(tmp_path / "b", new)
    document = surgery("derive", a, b, "--json").document
    assert [gap for gap in document["gaps"] if gap["path"] == f"params/{name}/bias"]
