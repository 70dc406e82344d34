"""An edit of many leaves costs so much a leaf: what is found out of all of them is found out once."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import serialization

from surgery_cli import surgery
from surgery_cli.planning.reading import plan_from_document
from tests import json_schemas

EDITS: list[list[dict[str, Any]]] = [
    [{"op": "prune", "at": "params", "sparsity": 0.5, "over": "all"}],
    [
        {"op": "normalize", "at": "params"},
        {"op": "prune", "at": "params", "sparsity": 0.5, "over": "all"},
        {"op": "prune", "at": "params", "sparsity": 0.75, "over": "all"},
    ],
    [{"op": "rename", "at": "params/*/w", "to": r"params/\1/kernel"}],
    [{"op": "rescale", "at": "params", "by": 0.5, "optimizer": "keep"}],
]


def calls_for(edits: list[dict[str, Any]], count: int, folder: Path) -> tuple[int, int]:
    """How many functions a preview and a run call for so many leaves, in all threads."""
    leaf = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    layers = {f"l{n:04d}": {"w": leaf} for n in range(count)}
    state = {"params": layers, "opt_state": {"0": {"count": 3, "mu": layers, "nu": layers}}}
    source = folder / f"{count}.msgpack"
    source.write_bytes(serialization.to_bytes(state))
    plan = plan_from_document({"edits": edits, "optimizer_kind": "adam"})
    calls = 0

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def counted(run: Any) -> int:
        nonlocal calls
        calls = 0
        threading.setprofile(see)
        sys.setprofile(see)
        try:
            run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        return calls

    target = folder / f"out{count}.msgpack"
    return (
        counted(lambda: surgery.plan(str(source), plan)),
        counted(lambda: surgery.apply(str(source), str(target), plan)),
    )


@pytest.mark.parametrize("edits", EDITS, ids=["prune", "three", "rename", "rescale"])
def test_twice_the_leaves_cost_twice_as_much(
    edits: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schemas, "LONGEST", 0)  # what tests look at is no cost of an edit
    calls_for(edits, 4, tmp_path)  # what is imported is imported
    few, some, many = (calls_for(edits, count, tmp_path) for count in (20, 40, 80))
    for one, two, four in zip(few, some, many, strict=True):
        assert four - two < 2.1 * (two - one)
