"""An edit of twice the leaves looks at twice as much: no function goes through all of them for each of them."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import surgery_cli
from surgery_cli import surgery
from surgery_cli.operations.regrouping import Regrouping
from surgery_cli.operations.table import operations
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.tree.paths import LeafPath
from tests import json_schemas

OURS = (str(Path(surgery_cli.__file__).parent), __file__)
Lines = Counter[CodeType]
"""How many lines of each function were run, a line once for each turn of a loop that stands in it."""


def equal(one: LeafPath, other: object) -> Any:
    """The comparison of paths, seen even where a list is searched for one, which is done in C."""
    return tuple.__eq__(one, other)


@contextmanager
def counted(lines: Lines) -> Iterator[None]:
    def see_line(frame: FrameType, event: str, argument: Any) -> Any:
        lines[frame.f_code] += event == "line"
        return see_line

    def see_call(frame: FrameType, event: str, argument: Any) -> Any:
        return see_line if frame.f_code.co_filename.startswith(OURS) else None

    before = sys.gettrace()
    threading.settrace(see_call)
    sys.settrace(see_call)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]


LAYERS = {"at": "params/layers/{all}"}
ROWS = {"at": "params/rows", "to": "params/row_{all}"}
JOINED = {**LAYERS, "to": "params/joined"}
TAKEN = {"at": "params/joined", "to": "params/row_{all}"}
STACK = {"op": "stack", **JOINED}
CONCAT = {"op": "concat", **JOINED, "axis": 0}
EDITS: dict[str, list[dict[str, Any]]] = {
    "stack": [STACK],
    "concat": [CONCAT],
    "concat in groups": [{**CONCAT, "groups": 2}],
    "unstack": [{"op": "unstack", **ROWS}],
    "split": [{"op": "split", **ROWS, "axis": 0}],
    "stack and unstack": [STACK, {"op": "unstack", **TAKEN}],
    "concat and split": [CONCAT, {"op": "split", **TAKEN, "axis": 0}],
    "rescale and concat": [{"op": "rescale", **LAYERS, "by": 2.0}, CONCAT],
    "normalize and stack": [{"op": "normalize", **LAYERS}, STACK],
    "normalize and concat": [{"op": "normalize", **LAYERS}, CONCAT],
    "noise and stack": [{"op": "noise", **LAYERS, "std": 0.1}, STACK],
    "noise and concat": [{"op": "noise", **LAYERS, "std": 0.1}, CONCAT],
    "prune and stack": [{"op": "prune", **LAYERS, "sparsity": 0.5, "over": "all"}, STACK],
    "concat, split and cast": [
        CONCAT,
        {"op": "split", **TAKEN, "axis": 0},
        {"op": "cast", "at": "params/row_*", "to": "bfloat16"},
    ],
    "stack and prune": [STACK, {"op": "prune", "at": "params/joined", "sparsity": 0.5}],
    "to-list": [{"op": "to-list", "at": "params/layers"}],
}


def test_all_that_regroups_leaves_is_looked_at() -> None:
    regrouping = {name for name, kind in operations().items() if issubclass(kind, Regrouping)}
    assert regrouping <= EDITS.keys()


def lines_for(edits: list[dict[str, Any]], count: int, folder: Path) -> Lines:
    """The lines that a preview and a run take for so many leaves, in all threads."""
    layers = {str(n): np.arange(4, dtype=np.float32) + n for n in range(count)}
    params = {"layers": layers, "rows": np.ones((count, 4), np.float32)}
    adam = {"count": np.int32(3), "mu": params, "nu": params}
    source, target = (str(folder / f"{name}{count}") for name in ("in", "out"))
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, {"params": params, "opt_state": {"0": adam}})
    every = f"{{0..{count - 1}}}"
    named = [
        {k: v.replace("{all}", every) if isinstance(v, str) else v for k, v in edit.items()}
        for edit in edits
    ]
    plan = plan_from_document({"edits": named, "optimizer_kind": "adam"})
    lines: Lines = Counter()
    with counted(lines):
        surgery.plan(source, plan)
        surgery.apply(source, target, plan)
    return lines


def squares_of(edits: list[dict[str, Any]], folder: Path) -> dict[str, tuple[int, int]]:
    """The functions of which twice the leaves take more than twice the lines: how many more for 10 and 20 of them."""
    few, some, many = (lines_for(edits, count, folder) for count in (10, 20, 40))
    growth = {
        f"{code.co_qualname} in {code.co_filename}": (
            max(some[code] - few[code], 0),
            many[code] - some[code],
        )
        for code in many
    }
    return {name: (one, two) for name, (one, two) in growth.items() if two > 2.5 * one + 60}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_no_function_looks_at_all_leaves_for_each_of_them(
    edits: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schemas, "LONGEST", 0)  # what tests look at is no cost of an edit
    monkeypatch.setattr(LeafPath, "__eq__", equal, raising=False)
    lines_for(edits, 40, tmp_path / "first")  # what is imported is imported, what is kept is kept
    squares = squares_of(edits, tmp_path / "second")
    if squares:  # how often one thread waits for another is not the same each time
        again = squares_of(edits, tmp_path / "third")
        squares = {name: lines for name, lines in squares.items() if name in again}
    assert not squares
