"""A function that gives something else at each call: who reads its leaf twice sees one result, or a refusal."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.kernels.largest import LargestCut
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning.reading import plan_from_document
from tests.operations.value_edits import spec_of

FUNCTIONS = """
from pathlib import Path
import numpy as np

CALLS = Path(__file__).with_name("calls")
COUNT = [0]

def kept(made, path):
    number = len(list(CALLS.glob("*.npy")))
    np.save(CALLS / f"{number}.npy", made)
    (CALLS / f"{number}.txt").write_text(path)
    return made

def drawn(array, path):
    return kept((array + np.random.standard_normal(array.shape)).astype(array.dtype), path)

def counted(array, path):
    COUNT[0] += 1
    return kept((array * COUNT[0]).astype(array.dtype), path)

def seeded(array, path):
    draw = np.random.default_rng([7, *path.encode()]).standard_normal(array.shape)
    return kept((array + draw).astype(array.dtype), path)

def replayed(array, path):
    numbers = [f.stem for f in CALLS.glob("*.txt") if f.read_text() == path]
    return np.load(CALLS / f"{numbers[0]}.npy")
"""

READ_AGAIN: dict[str, list[dict[str, Any]]] = {
    "copy": [{"op": "copy", "at": "params/a", "to": "params/c"}],
    "split": [{"op": "split", "at": "params/a", "to": ["params/a1", "params/a2"], "axis": 0}],
    "prune over all": [{"op": "prune", "at": "params/*", "sparsity": 0.5, "over": "all"}],
    "judged between": [
        {"op": "assert", "at": "params/a", "finite": True},
        {"op": "rescale", "at": "params/a", "by": 0.5},
    ],
    "copied and pruned": [
        {"op": "copy", "at": "params/a", "to": "params/c"},
        {"op": "prune", "at": "params/c", "sparsity": 0.25},
    ],
}
READ_ONCE: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "rescale": [{"op": "rescale", "at": "params/*", "by": 0.5}],
    "cast": [{"op": "cast", "at": "params/*", "to": "bfloat16"}],
    "noise": [{"op": "noise", "at": "params/*", "std": 0.1, "seed": 3}],
    "transpose": [{"op": "transpose", "at": "params/*"}],
    "rename": [{"op": "rename", "at": "params/a", "to": "params/c"}],
    "stack": [{"op": "stack", "at": ["params/a", "params/b"], "to": "params/ab"}],
}
EITHER: dict[str, list[dict[str, Any]]] = {
    "normalize": [{"op": "normalize", "at": "params/*", "to": 1.0}],
    "clip by norm": [{"op": "clip", "at": "params/*", "norm": 1.0}],
    "prune": [{"op": "prune", "at": "params/*", "sparsity": 0.5}],
    "resize": [{"op": "resize", "at": "params/*", "axis": 0, "size": 9, "fill": "mean"}],
    "noise of its size": [{"op": "noise", "at": "params/*", "std": 0.1, "relative": True}],
    "shrink": [{"op": "shrink-and-perturb", "at": "params/*", "shrink": 0.4, "std": 0.01}],
    "asserted": [{"op": "assert", "at": "params/*", "absmax": "..1e6"}],
    "concat": [{"op": "concat", "at": ["params/a", "params/b"], "to": "params/ab", "axis": 0}],
}
"""Whether they read it once hangs on its size, its values and memory."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "edit.py").write_text(FUNCTIONS)
    (tmp_path / "calls").mkdir()
    keys = jax.random.split(jax.random.key(0))
    params = {name: jax.random.normal(key, (8, 6)) for name, key in zip("ab", keys, strict=True)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"params": params, "step": jnp.int32(7)})
    return tmp_path / "source"


def applied(
    source: Path, function: str, name: str, edits: list[dict[str, Any]], **more: Any
) -> Path:
    first = {"op": "map", "at": "params/*", "with": f"{source.parent / 'edit.py'}:{function}"}
    goal = source.with_name(name)
    surgery.apply(str(source), str(goal), plan_from_document({"edits": [first, *edits], **more}))
    return goal


def restored(goal: Path) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(goal)


def calls(source: Path) -> dict[str, set[bytes]]:
    """What a function gave for each leaf, whenever it was called."""
    found = defaultdict(set)
    for file in source.with_name("calls").glob("*.txt"):
        found[file.read_text()].add(np.load(file.with_suffix(".npy")).tobytes())
    return found


@pytest.mark.parametrize("function", ["drawn", "counted"])
@pytest.mark.parametrize("name", [*READ_AGAIN, *READ_ONCE, *EITHER])
def test_what_is_made_of_it_is_of_one_call_or_is_refused(
    source: Path, function: str, name: str
) -> None:
    edits = (READ_AGAIN | READ_ONCE | EITHER)[name]
    said = ""
    try:
        goal = applied(source, function, "goal", edits)
    except ValueRefusal as error:
        said = str(error)
    if said:
        assert name not in READ_ONCE
        assert f"edit.py:{function}' on 'params/" in said
        assert "gave something else when it was called again" in said
        assert "np.random.default_rng" in said
        assert not source.with_name("goal").exists()
        assert max(map(len, calls(source).values())) > 1
        return
    assert name not in READ_AGAIN
    assert set(map(len, calls(source).values())) == {1}
    jax.tree.map(
        np.testing.assert_array_equal,
        restored(goal),
        restored(applied(source, "replayed", "replayed", edits)),
    )


@pytest.mark.parametrize("name", [*READ_AGAIN, *READ_ONCE, *EITHER])
def test_one_that_gives_the_same_again_is_called_as_often_as_need_be(
    source: Path, name: str
) -> None:
    edits = (READ_AGAIN | READ_ONCE | EITHER)[name]
    goal = applied(source, "seeded", "goal", edits)
    assert set(map(len, calls(source).values())) == {1}
    replayed = applied(source, "replayed", "replayed", edits)
    jax.tree.map(np.testing.assert_array_equal, restored(goal), restored(replayed))


@pytest.mark.parametrize("function", ["drawn", "counted", "seeded"])
def test_a_rule_that_holds_is_true_of_what_is_stored(source: Path, function: str) -> None:
    tied = [{"op": "copy", "at": "params/a", "to": "params/c"}]
    rule = {"id": "tied", "at": "params/c", "equal_to": "params/a"}
    if function != "seeded":
        with pytest.raises(ValueRefusal, match="gave something else"):
            applied(source, function, "goal", tied, check=[rule])
        return
    params = restored(applied(source, function, "goal", tied, check=[rule]))["params"]
    np.testing.assert_array_equal(params["a"], params["c"])


def test_runs_know_nothing_of_each_other(source: Path) -> None:
    """A leaf that is read once may be drawn: what an earlier run of the same program drew is another result."""
    one, two = (restored(applied(source, "drawn", name, [])) for name in ("one", "two"))
    assert (np.asarray(one["params"]["a"]) != np.asarray(two["params"]["a"])).all()


def test_a_function_that_is_named_twice_sees_other_arrays(source: Path) -> None:
    again = {"op": "map", "at": "params/*", "with": f"{source.parent / 'edit.py'}:seeded"}
    goal = applied(source, "seeded", "goal", [again])
    before = np.asarray(restored(source)["params"]["a"])
    draw = np.random.default_rng([7, *b"params/a"]).standard_normal(before.shape)
    expected = ((before + draw).astype("float32") + draw).astype("float32")
    np.testing.assert_array_equal(restored(goal)["params"]["a"], expected)


def test_a_search_whose_values_get_fewer_while_they_are_read_is_refused() -> None:
    """Not of functions alone: a source may change between two passes."""
    spec = spec_of(np.zeros(8, np.float32))
    cut = LargestCut(count=4)
    known = cut.start([spec])
    nowhere = np.zeros(1 << 15, np.int64)
    with pytest.raises(ValueRefusal, match="values changed while they were read"):
        cut.narrowed(known, nowhere, [spec])


def test_files_of_the_same_bytes_in_two_folders_are_two(source: Path, tmp_path: Path) -> None:
    """Each imports what lies beside it: the second is given the same values, and gives others."""
    edits = []
    for folder, factor in (("one", 1), ("three", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside.py").write_text(f"FACTOR = {factor}\n")
        lines = "from beside import FACTOR\ndef scaled(array, path):\n    return array * FACTOR\n"
        (tmp_path / folder / "edit.py").write_text(lines)
        edits.append({"op": "map", "at": "params/a", "with": f"{tmp_path / folder}/edit.py:scaled"})
    surgery.apply(str(source), str(tmp_path / "new"), plan_from_document({"edits": edits}))
    with ocp.PyTreeCheckpointer() as checkpointer:
        before, after = (checkpointer.restore(place) for place in (source, tmp_path / "new"))
    np.testing.assert_array_equal(after["params"]["a"], before["params"]["a"] * 3)
