"""`surgery.json` is a plan: that of the run that wrote it, for a later step, and refused where it no longer fits."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.planning import Plan
from surgery_cli.planning.reading import plan_from_document, read_plan
from surgery_cli.store.filesystem.names import name_of_record

Tree = dict[str, Any]


def state(seed: int, name: str = "w") -> Tree:
    draws = np.random.default_rng(seed)
    params = {name: draws.normal(size=(4, 3)).astype(np.float32), "b": np.ones(3, np.float32)}
    return {"params": params, "opt_state": optax.sgd(0.1, momentum=0.9).init(params)}


def saved(path: Path, tree: Tree) -> str:
    if path.suffix == ".msgpack":
        path.write_bytes(serialization.to_bytes(tree))
    else:
        ocp.PyTreeCheckpointer().save(path, tree)
    return str(path)


def edited(source: str, goal: Path, *edits: Tree, **shared: Any) -> Path:
    """The record of a run."""
    surgery.apply(source, str(goal), plan_from_document({"edits": list(edits), **shared}))
    beside = goal.with_name(name_of_record(goal.name))
    return beside if beside.exists() else goal / "surgery.json"


HALF = {"op": "rescale", "at": "params/w", "by": 0.5, "optimizer": "transform"}


@pytest.mark.parametrize("suffix", ["", ".msgpack"])
def test_a_record_does_to_a_later_step_what_its_run_did(tmp_path: Path, suffix: str) -> None:
    one, two = (saved(tmp_path / f"{n}{suffix}", state(n)) for n in (1, 2))
    donor = saved(tmp_path / f"donor{suffix}", state(3))
    edits = [
        HALF,
        {"op": "replace", "at": "params/b", "with": "other", "note": "${not} a variable"},
        {"op": "reinit", "at": "params/b", "init": "normal"},
        {"op": "rename", "at": "params/w", "to": "params/kernel"},
    ]
    shared = {"sources": {"other": donor}, "seed": 5, "optimizer_kind": "sgd"}
    record = edited(one, tmp_path / f"edited{suffix}", *edits, **shared)
    again = surgery.apply(two, str(tmp_path / f"by record{suffix}"), read_plan(str(record)))
    named = plan_from_document({"edits": edits, **shared})
    assert again.draft == surgery.plan(two, named).draft
    assert (
        surgery.plan(one, read_plan(str(record))).draft == json.loads(record.read_bytes())["draft"]
    )


def test_of_several_runs_the_last_is_the_plan_sealed_or_not(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", state(1))
    edited(source, tmp_path / "b", {"op": "rescale", "at": "params/b", "by": 3.0})
    record = edited(str(tmp_path / "b"), tmp_path / "c", HALF)
    surgery.seal(str(tmp_path / "c"))
    (edit,) = read_plan(str(record)).edits
    assert (edit.name, edit.at) == ("rescale", "params/w")


def refused(plan: Path, source: str) -> str:
    with pytest.raises(PlanError) as caught:
        surgery.plan(source, read_plan(str(plan)))
    (problem,) = caught.value.problems
    return f"{problem.file}:{problem.line}: {problem.what}; {problem.why}"


def test_where_it_no_longer_fits_it_is_refused_with_its_own_lines(tmp_path: Path) -> None:
    record = edited(saved(tmp_path / "a", state(1)), tmp_path / "b", HALF)
    said = refused(record, saved(tmp_path / "other", state(1, name="kernel")))
    line = record.read_text().splitlines().index('    "at": "params/w",') + 1
    assert f"{record}:{line}: " in said
    assert "'params/w' matches nothing" in said


def _seal(source: str, goal: Path) -> Path:
    surgery.seal(source)
    return Path(source) / "surgery.json"


def _compact(source: str, goal: Path) -> Path:
    surgery.apply(source, str(goal), Plan(), options=surgery.Options(compact="always"))
    return goal / "surgery.json"


@pytest.mark.parametrize(
    ("write", "why"), [(_seal, "`surgery seal` wrote it"), (_compact, "nothing was edited")]
)
def test_a_record_without_a_run_is_no_plan(
    tmp_path: Path, write: Callable[[str, Path], Path], why: str
) -> None:
    source = saved(tmp_path / "a", state(1))
    said = refused(write(source, tmp_path / "b"), source)
    assert "the record holds no plan" in said
    assert why in said


def test_a_record_that_was_changed_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", state(1))
    record = edited(source, tmp_path / "b", HALF)
    record.write_text(record.read_text().replace('"by": 0.5', '"by": 0.25'))
    assert "the record is not what was written" in refused(record, source)


def test_a_donor_that_changed_since_is_refused(tmp_path: Path) -> None:
    source, donor = (saved(tmp_path / name, state(n)) for n, name in enumerate("ad"))
    record = edited(source, tmp_path / "b", {"op": "replace", "at": "params/w", "with": donor})
    (tmp_path / "d").rename(tmp_path / "old")
    saved(tmp_path / "d", state(7))
    assert "is not what the plan was made for" in refused(record, source)


def _numbers(path: Path, value: int) -> None:
    order = np.array([[0, 1, 2], [2, 0, 1]])[value]
    if path.suffix == ".npy":
        np.save(path, order)
    else:
        path.write_text(
            str(order.tolist()) if path.suffix == ".json" else "0\n1\n2"[:: 1 - 2 * value]
        )


def _array(path: Path, value: int) -> None:
    if path.exists():
        os.utime(path, (0, 0))  # a file of values is known by its times
    np.save(path, np.full((4, 3), 1 - value, np.float32))


def _laid_out(path: Path, value: int) -> None:
    if path.exists():
        shutil.rmtree(path)
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x") if value else PartitionSpec())
    saved(path, jax.tree.map(partial(jax.device_put, device=sharding), state(2)))


NAMED = {
    "order.npy": (_numbers, {"op": "permute", "at": "params/w", "axis": 1, "index": "FILE"}),
    "order.json": (_numbers, {"op": "permute", "at": "params/w", "axis": 1, "index": "FILE"}),
    "order.txt": (_numbers, {"op": "permute", "at": "params/w", "axis": 1, "index": "FILE"}),
    "by.npy": (_array, {"op": "rescale", "at": "params/w", "by": "FILE", "optimizer": "keep"}),
    "mask.npy": (_array, {"op": "mask", "at": "params/w", "by": "FILE"}),
    "with.npy": (_array, {"op": "replace", "at": "params/w", "with": "FILE"}),
    "like": (_laid_out, None),
}


@pytest.mark.parametrize("name", NAMED)
def test_whatever_a_plan_names_and_changed_since_is_refused(tmp_path: Path, name: str) -> None:
    make, edit = NAMED[name]
    source, file = saved(tmp_path / "source", state(1)), tmp_path / name
    make(file, 0)
    if edit is None:
        shared: Tree = {"reshard": {"like": str(file)}}
        edits = [HALF]
    else:
        shared = {}
        edits = [{k: str(file) if v == "FILE" else v for k, v in edit.items()}]
    record = edited(source, tmp_path / "edited", *edits, optimizer_kind="sgd", **shared)
    assert list(json.loads(record.read_text())["donors"]) == [str(file)]
    again = surgery.apply(source, str(tmp_path / "again"), read_plan(str(record)))
    assert again.verified is not None
    make(file, 1)
    said = refused(record, source)
    assert f"'{file}' is not what the plan was made for" in said
    (tmp_path / "plan.json").write_text(json.dumps(json.loads(record.read_text())["plan"]))
    surgery.apply(source, str(tmp_path / "anew"), read_plan(str(tmp_path / "plan.json")))


def test_every_field_that_names_a_file_is_held_to_it() -> None:
    """By its name in the tests above, as one that opens donors, or pinned by its digest."""
    fields = {(name, field) for name, kind in operations().items() for field in kind.path_fields}
    tried = {
        (edit["op"], k)
        for _, edit in NAMED.values()
        if edit
        for k, v in edit.items()
        if v == "FILE"
    }
    opened = {
        (name, field) for name, field in fields if field in {"with", "base"} and name != "map"
    }
    judging = {(name, field) for name, field in fields if name == "assert"}
    assert fields - tried - opened - judging == {("map", "with")}


def test_a_function_that_changed_since_is_refused(tmp_path: Path) -> None:
    source, file = saved(tmp_path / "a", state(1)), tmp_path / "edit.py"
    file.write_text("def half(array, path):\n    return array / 2\n")
    edit = {"op": "map", "at": "params/w", "with": f"{file}:half"}
    record = edited(source, tmp_path / "b", edit)
    file.write_text("def half(array, path):\n    return array / 3\n")
    assert "is not the function that the plan means" in refused(record, source)


def test_a_record_takes_no_settings(tmp_path: Path) -> None:
    record = edited(saved(tmp_path / "a", state(1)), tmp_path / "b", HALF)
    with pytest.raises(PlanError, match="nothing takes `--set by`"):
        read_plan(str(record), settings={"by": "2"})
    with record.open() as given:
        assert len(read_plan("-", stdin=given).edits) == 1
