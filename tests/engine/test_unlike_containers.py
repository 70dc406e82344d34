"""A node that is a list here and a dict there is said once; what stands below it is held against its like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import surgery_cli as surgery

LAYER = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
LAYERS = {str(n): {**LAYER, "steps": [LAYER["b"]]} for n in range(3)}


def _listed(tree: Any) -> Any:
    """The tree with each dict whose keys are numbers as a list."""
    if isinstance(tree, list):
        return list(map(_listed, tree))
    if not isinstance(tree, dict):
        return tree
    below = {key: _listed(value) for key, value in tree.items()}
    return list(below.values()) if below and all(key.isdigit() for key in below) else below


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("containers")
    apart = {**LAYERS, "1": {**LAYERS["1"], "w": LAYER["w"].astype(np.float16)}}
    apart["2"] = {key: value for key, value in LAYERS["2"].items() if key != "b"}
    trees = {
        "dicts": {"params": {"layers": LAYERS, "x": LAYER["w"]}},
        "lists": {"params": {"layers": _listed(LAYERS), "x": LAYER["w"]}},
        "apart": {"params": {"layers": _listed(apart), "x": LAYER["w"]}},
    }
    with ocp.StandardCheckpointer() as checkpointer:
        for name, tree in trees.items():
            checkpointer.save(folder / name, tree)
    return {name: folder / name for name in trees}


@pytest.mark.parametrize(
    ("here", "there", "why"),
    [
        ("lists", "dicts", "it is a list here, and a dict there"),
        ("dicts", "lists", "it is a dict here, and a list there"),
    ],
)
@pytest.mark.parametrize("rule", ["same_structure_as", "equal_in"])
@pytest.mark.parametrize("at", ["params", "params/layers", "params/layers/*/w"])
def test_rules_say_another_container_once(
    saved: dict[str, Path], here: str, there: str, why: str, rule: str, at: str
) -> None:
    verdict = surgery.check(saved[here], [{"at": at, rule: str(saved[there])}])
    said = [finding for case in verdict.to_dict()["rules"] for finding in case["findings"]]
    assert not verdict
    assert [(finding["path"], finding["why"]) for finding in said] == [("params/layers", why)]


def test_what_differs_below_another_container_is_said_of_its_leaf(saved: dict[str, Path]) -> None:
    rule = {"same_structure_as": str(saved["dicts"])}
    (case,) = surgery.check(saved["apart"], [rule]).to_dict()["rules"]
    assert {finding["path"] for finding in case["findings"]} == {
        "params/layers",
        "params/layers/1/w",
        "params/layers/2/b",
    }
    (case,) = surgery.check(saved["dicts"], [{"equal_in": str(saved["apart"])}]).to_dict()["rules"]
    assert {"params/layers", "params/layers/1/w"} <= {f["path"] for f in case["findings"]}


def test_verify_says_another_container_once(saved: dict[str, Path]) -> None:
    found = surgery.verify(saved["lists"], like=saved["dicts"]).to_dict()
    assert found["findings"] == [
        {
            "path": "params/layers",
            "what": "container",
            "about": "node",
            "here": "list",
            "there": "dict",
        }
    ]
    assert found["agreeing"] == ["params/x"]
    apart = surgery.verify(saved["apart"], like=saved["dicts"]).to_dict()["findings"]
    assert {(one["path"], one["what"]) for one in apart} == {
        ("params/layers", "container"),
        ("params/layers/1/w", "dtype"),
        ("params/layers/2/b", "missing"),
    }


@pytest.mark.parametrize(
    ("a", "b", "sides"),
    [("lists", "dicts", ("list", "dict")), ("dicts", "lists", ("dict", "list"))],
)
def test_diff_says_another_container_once_and_reads_what_is_below(
    saved: dict[str, Path], a: str, b: str, sides: tuple[str, str]
) -> None:
    found = surgery.diff(saved[a], saved[b]).to_dict()
    assert (found["only_in_a"], found["only_in_b"]) == ([], [])
    (node,) = found["changed"]
    assert (node["path"], node["what"], node["a"], node["b"]) == (
        "params/layers",
        "container",
        *sides,
    )
    assert len(found["agreeing"]) == found["equal"] == 10
    named = surgery.diff(saved[a], saved[b], "params/x").to_dict()
    assert (named["changed"], named["equal"]) == ([], 1)


def test_diff_says_of_leaves_what_differs_below_another_container(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    found = surgery.diff(saved["apart"], saved["dicts"]).to_dict()
    assert found["only_in_b"] == ["params/layers/2/b"]
    assert {(one["path"], one["what"]) for one in found["changed"]} == {
        ("params/layers", "container"),
        ("params/layers/1/w", "dtype"),
    }
    surgery.apply(
        saved["lists"], tmp_path / "halved", [surgery.Rescale(at="params/layers/0/w", by=0.5)]
    )
    for sides in ((tmp_path / "halved", saved["dicts"]), (saved["dicts"], tmp_path / "halved")):
        node, leaf = surgery.diff(*sides).to_dict()["changed"]
        assert node["what"] == "container"
        assert (leaf["path"], leaf["what"], leaf["max_abs"]) == ("params/layers/0/w", "values", 0.5)
