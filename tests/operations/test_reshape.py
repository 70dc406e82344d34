"""Reshape of some axes: heads parted and taken together, as NumPy does it of whole leaves."""

from __future__ import annotations

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.reshape import Reshape
from surgery_cli.planning import plan_from_document
from tests.hand_built_trees import array, resolved
from tests.operations.value_edits import edited

LEAF = np.arange(2 * 12 * 5, dtype=np.float32).reshape(2, 12, 5)


@pytest.mark.parametrize(
    ("axis", "shape", "new"),
    [
        (1, (-1, 4), (2, 3, 4, 5)),
        (-2, (3, -1), (2, 3, 4, 5)),
        ((0, 1), (-1,), (24, 5)),
        ((-2, -1), (15, -1), (2, 15, 4)),
        ((0, 1, 2), (-1,), (120,)),
        (2, (5, 1), (2, 12, 5, 1)),
        (None, (-1, 10), (12, 10)),
    ],
)
def test_axes_that_are_named_get_the_shape_and_the_others_stay(axis, shape, new):
    result = edited(Reshape(axis=axis, shape=shape), LEAF, block=(2, 3, 2, 5)[: len(new)])
    np.testing.assert_array_equal(result, LEAF.reshape(new))


@pytest.mark.parametrize(
    ("axis", "shape", "said"),
    [
        (1, (-1, 5), "axis 1 of float32[2,12,5] does not become `shape: [-1, 5]`"),
        ((0, 1), (7, -1), "the products of [2, 12] and [7, 3] are not the same"),
        ((0, 2), (-1,), "`axis: [0, 2]` are not axes that follow each other"),
        ((1, 0), (-1,), "are not axes that follow each other"),
        (3, (-1, 1), "does not fit a leaf with 3 axes"),
        (1, (-1, -1), "is no shape"),
    ],
)
def test_what_the_axes_do_not_become_is_refused_with_their_sizes(axis, shape, said):
    with pytest.raises(PlanError) as caught:
        resolved({"a": array(2, 12, 5)}, Reshape(at="a", axis=axis, shape=shape))
    (problem,) = caught.value.problems
    assert said in f"{problem.what} {problem.why}"


def test_heads_of_any_number_are_parted_by_one_edit():
    tree = {"query": array(8, 24), "key": array(8, 8)}
    draft = resolved(tree, Reshape(at="**", axis=1, shape=(-1, 4)))
    assert [leaf.spec.shape for leaf in draft.leaves.values()] == [(8, 6, 4), (8, 2, 4)]


@pytest.mark.parametrize("op", ["expand", "reshape", "repeat"])
def test_a_python_number_that_is_to_have_axes_is_made_an_array_first_as_the_refusal_says(
    tmp_path, op
):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "c", {"params": {"k": 1.5, "w": np.ones(3, np.float32)}})
    fields = {
        "expand": {"axis": 0},
        "reshape": {"shape": [1, 1]},
        "repeat": {"axis": 0, "times": 2},
    }
    edit = {"op": op, "at": "params/k", **fields[op]}
    with pytest.raises(PlanError) as caught:
        surgery.plan(str(tmp_path / "c"), plan_from_document({"edits": [edit]}))
    assert "`delete` it, and `add` it `with` the checkpoint itself and `kind: array`" in str(
        caught.value
    )
    first = [
        {"op": "delete", "at": "params/k"},
        {"op": "add", "at": "params/k", "with": str(tmp_path / "c"), "from": "params/k", "kind": "array"},
        {"op": "expand", "at": "params/k", "axis": 0},
    ]  # fmt: skip
    surgery.apply(str(tmp_path / "c"), str(tmp_path / "new"), plan_from_document({"edits": first}))
    with ocp.StandardCheckpointer() as checkpointer:
        back = checkpointer.restore(tmp_path / "new")["params"]["k"]
    assert (np.asarray(back).tolist(), isinstance(back, float)) == ([1.5], False)
