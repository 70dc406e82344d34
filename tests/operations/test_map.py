"""A function of the user's makes new values: once a leaf, of the whole leaf, and every misstep names both."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError, SurgeryError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.planning.reading import plan_from_document

FUNCTIONS = """
import os
import numpy as np
from helper import HALF

SEEN = os.path.join(os.path.dirname(__file__), "seen.txt")

def halve(array, path):
    with open(SEEN, "a") as seen:
        print(path, array.shape, array.dtype, file=seen)
    return array * array.dtype.type(HALF)

def scaled(array, path, by=1.0):
    return array * array.dtype.type(by)

def fails(array, path):
    raise KeyError(path)

def leaves(array, path):
    raise SystemExit(3)

def changes(array, path):
    array += 1
    return array

def sorts(array, path):
    array.sort()
    return array

def nothing(array, path):
    pass

def listed(array, path):
    return array.tolist()

def wide(array, path):
    return array.astype("float64")

def cut(array, path):
    return array[..., 1:]

def broken(array, path):
    return array * array.dtype.type("nan")

def appended(array, path):
    with open(__file__, "a") as file:
        file.write("#")
    return array

BUFFER = np.empty(6, "float32")

def buffered(array, path):
    filled = BUFFER.reshape(2, 3)
    filled[...] = array * 2
    return filled

def swapped(array, path):
    return (array * array.dtype.type(2)).astype(array.dtype.newbyteorder())

def masked(array, path):
    return np.ma.masked_less(array, 3)

def one(array):
    return array

NUMBER = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "edit.py"
    path.write_text(FUNCTIONS)
    (tmp_path / "helper.py").write_text("HALF = 0.5\n")
    return path


PARAMS = {
    "a": np.arange(1, 13, dtype=np.float32).reshape(4, 3),
    "b": np.arange(1, 6).astype(ml_dtypes.bfloat16),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    params = {name: jnp.asarray(leaf) for name, leaf in PARAMS.items()}
    state = {"params": params, "opt_state": optax.adam(1e-3).init(params)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", state)
    return tmp_path / "a"


def mapped(source: Path, file: Path, name: str, **options: Any) -> Any:
    goal = source.with_name("b")
    edit = operation_from_options("map", {"at": "params", "with": f"{file}:{name}", **options})
    report = surgery.apply(str(source), str(goal), plan_of([edit]))
    with ocp.StandardCheckpointer() as checkpointer:
        return report, checkpointer.restore(goal)


def refusal(source: Path, file: Path, name: str, **options: Any) -> SurgeryError:
    with pytest.raises(SurgeryError) as caught:
        mapped(source, file, name, **options)
    assert not source.with_name("b").exists()
    return caught.value


def test_every_leaf_is_given_whole_once_with_its_path_and_slots_stay(
    source: Path, file: Path, capfd: Any
) -> None:
    report, done = mapped(source, file, "halve")
    for name, leaf in PARAMS.items():
        assert np.asarray(done["params"][name]).tobytes() == (leaf * leaf.dtype.type(0.5)).tobytes()
    seen = file.with_name("seen.txt").read_text().splitlines()
    assert sorted(seen) == ["params/a (4, 3) float32", "params/b (5,) bfloat16"]
    assert report.edits[0].twins == {"keep": 4}


@pytest.mark.parametrize("name", ["buffered", "swapped"])
def test_what_a_function_does_with_the_memory_that_it_returned_is_its_own_affair(
    tmp_path: Path, file: Path, name: str
) -> None:
    params = {key: np.full((2, 3), number, np.float32) for number, key in enumerate("abcd")}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params})
    _, done = mapped(tmp_path / "a", file, name)
    for key, leaf in params.items():
        np.testing.assert_array_equal(done["params"][key], leaf * 2)


def test_arguments_may_be_given(source: Path, file: Path) -> None:
    _, done = mapped(source, file, "scaled(by=0.25)")
    np.testing.assert_array_equal(done["params"]["a"], PARAMS["a"] / 4)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails", ["edit.py:fails' on 'params/a' failed", "raise KeyError(path)", "KeyError"]),
        ("leaves", ["edit.py:leaves' on 'params/a' failed", "raise SystemExit(3)"]),
        ("changes", ["'params/a' changes the array", "array += 1", "return a new array"]),
        ("sorts", ["'params/a' changes the array", "array.sort()"]),
        ("nothing", ["edit.py:nothing' on 'params/a' returns 'NoneType', and no array"]),
        ("listed", ["edit.py:listed' on 'params/a' returns 'list', and no array"]),
        ("masked", ["'params/a' returns an array of which parts are masked", "new.filled(0)"]),
        ("wide", ["'params/a' returns float64[4,3], and not float32[4,3]"]),
        ("cut", ["'params/a' returns float32[4,2], and not float32[4,3]"]),
        ("broken", ["'params/a' would have 12 new non-finite values", "edit.py:broken' makes NaN"]),
    ],
)
def test_what_goes_wrong_names_the_leaf_and_the_function(
    source: Path, file: Path, name: str, said: list[str]
) -> None:
    error = refusal(source, file, name, at="params/a")
    for part in said:
        assert part in str(error), str(error)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere", "has no 'nowhere'"),
        ("NUMBER", "names no function"),
        ("one", "cannot be called with an array and a path"),
        ("scaled(to=2)", "unexpected keyword argument 'to'"),
    ],
)
def test_what_is_no_such_function_is_refused_before_any_work(
    source: Path, file: Path, name: str, what: str
) -> None:
    edit = operation_from_options("map", {"at": "params", "with": f"{file}:{name}"})
    with pytest.raises(SurgeryError, match=what) as caught:
        surgery.plan(str(source), plan_of([edit]))
    assert caught.value.exit_code == 2


def test_another_dtype_or_shape_is_said(source: Path, file: Path) -> None:
    at = {"at": "params/a"}
    _, done = mapped(source, file, "wide", spec="float64[4, 3]", effect="keeps", **at)
    assert (done["params"]["a"] == PARAMS["a"]).all()
    for spec in ("float65[4,3]", "float32", "float32[4,x]"):
        with pytest.raises(PlanError, match="no dtype with a shape"):
            surgery.plan(
                str(source),
                plan_of(
                    [operation_from_options("map", {"with": f"{file}:cut", "spec": spec, **at})]
                ),
            )


def test_a_new_shape_needs_slots_that_fit_or_none(source: Path, file: Path) -> None:
    options = {"at": "params/a", "with": f"{file}:cut", "spec": "float32[4,2]"}
    with pytest.raises(PlanError, match="would not mirror") as caught:
        surgery.plan(str(source), plan_of([operation_from_options("map", options)]))
    assert "`delete` the optimizer state" in str(caught.value)
    edits = [
        operation_from_options("delete", {"at": "opt_state"}),
        operation_from_options("map", options),
    ]
    surgery.apply(str(source), str(source.with_name("b")), plan_of(edits))
    with ocp.StandardCheckpointer() as checkpointer:
        done = checkpointer.restore(source.with_name("b"))
    np.testing.assert_array_equal(done["params"]["a"], PARAMS["a"][:, 1:])


def test_its_file_is_on_record_and_what_is_recorded_runs_no_other(source: Path, file: Path) -> None:
    sha256 = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    report, _ = mapped(source, file, "halve")
    assert any(sha256 in note for note in report.notes)
    recorded = json.loads((source.with_name("b") / "surgery.json").read_text())["plan"]
    assert recorded["edits"][0]["sha256"] == sha256
    again = surgery.plan(str(source), plan_from_document(recorded))
    assert again.draft == report.draft

    file.write_text(FUNCTIONS + "\n# another\n")
    other = operation_from_options("map", {"at": "params", "with": f"{file}:halve"})
    assert surgery.plan(str(source), plan_of([other])).draft != report.draft
    with pytest.raises(PlanError, match="not the function that the plan means"):
        surgery.plan(str(source), plan_from_document(recorded))


def test_a_file_that_changes_while_its_functions_run_is_refused(source: Path, file: Path) -> None:
    error = refusal(source, file, "appended")
    assert isinstance(error, CheckpointError)
    assert "changed while its functions ran" in str(error)


@pytest.mark.parametrize(("effect", "policies"), [("takes", {"warm": 2}), ("keeps", {})])
def test_slots_go_by_the_effect_that_is_said(
    source: Path, file: Path, effect: str, policies: dict[str, int]
) -> None:
    edit = {"at": "params/a", "with": f"{file}:scaled", "effect": effect}
    preview = surgery.plan(str(source), plan_of([operation_from_options("map", edit)]))
    assert preview.edits[0].twins == policies


def test_a_function_runs_alone_beside_edits_of_other_leaves(source: Path, file: Path) -> None:
    """It may change the process while it runs; what is written meanwhile must not feel it."""
    edits = [
        operation_from_options("rescale", {"at": "params/b", "by": 2.0, "optimizer": "keep"}),
        operation_from_options("map", {"at": "params/*", "with": f"{file}:halve"}),
        operation_from_options("normalize", {"at": "params/a", "optimizer": "keep"}),
    ]
    surgery.apply(str(source), str(source.with_name("b")), plan_of(edits))
    with ocp.StandardCheckpointer() as checkpointer:
        done = checkpointer.restore(source.with_name("b"))
    assert np.asarray(done["params"]["b"]).tobytes() == PARAMS["b"].tobytes()
    np.testing.assert_allclose(np.linalg.norm(done["params"]["a"]), 1, rtol=1e-6)
