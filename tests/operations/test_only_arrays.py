"""The only array of a file serves every leaf, unless it is called like one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import operation_from_options, plan_of

PARAMS = {"a": np.full((2, 3), 2, np.float32), "b": np.full((2, 3), 5, np.float32)}
EDITS = {"mask": "by", "rescale": "by", "replace": "with", "add-scaled": "with"}
WANTED = {"mask": (0, 0), "rescale": (0, 0), "replace": (0, 0), "add-scaled": (2, 5)}


def edited(tmp_path: Path, entry: str, name: str, at: list[str]) -> dict[str, np.ndarray]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"params": PARAMS})
        np.savez(tmp_path / "arrays.npz", **{entry: np.zeros((2, 3), np.float32)})
        edit = operation_from_options(name, {"at": at, EDITS[name]: str(tmp_path / "arrays.npz")})
        surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), plan_of([edit]))
        found: dict[str, np.ndarray] = checkpointer.restore(tmp_path / "new")["params"]
    return found


@pytest.mark.parametrize("name", EDITS)
def test_a_name_of_its_own_is_that_of_an_array_for_all(name: str, tmp_path: Path) -> None:
    found = edited(tmp_path, "weights", name, ["params/a", "params/b"])
    for key, number in zip("ab", WANTED[name], strict=True):
        np.testing.assert_array_equal(found[key], np.full((2, 3), number, np.float32))


@pytest.mark.parametrize("name", EDITS)
def test_what_is_called_like_one_leaf_is_not_taken_for_another(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="has no leaf 'params/b'") as caught:
        edited(tmp_path, "params/a", name, ["params/a", "params/b"])
    assert len(caught.value.problems) == 1
    assert "arrays.npz:params/a" in caught.value.problems[0].fix


@pytest.mark.parametrize("name", EDITS)
def test_what_is_called_like_the_only_leaf_is_for_it(name: str, tmp_path: Path) -> None:
    found = edited(tmp_path, "params/a", name, ["params/a"])
    np.testing.assert_array_equal(found["a"], np.full((2, 3), WANTED[name][0], np.float32))
    np.testing.assert_array_equal(found["b"], PARAMS["b"])
