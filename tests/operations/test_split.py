"""Leaves cut along an axis and put together again: by sizes, by turns, in every dtype; and what cannot be, named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.expression import Stored, made
from surgery_cli.draft.kernels.join import Concat
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from surgery_cli.surgery import Options
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import (
    ArrayScene,
    computed,
    draft_of,
    rewritten,
    stored,
)

SIZES = (4, 2, 2)


def fused(heads: int = 2, layers: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def layer() -> dict[str, Any]:
        kernel = rng.normal(size=(4, heads * 4)).astype(ml_dtypes.bfloat16)
        return {"qkv": {"kernel": kernel, "bias": rng.normal(size=heads * 4).astype(np.float16)}}

    return {"params": {f"block_{n}": layer() for n in range(layers)}}


def saved(path: Path, tree: Any) -> str:
    ocp.PyTreeCheckpointer().save(path, tree)
    return str(path)


def restored(path: Path) -> Any:
    return ocp.PyTreeCheckpointer().restore(path)


SPLIT = {
    "op": "split",
    "at": "params/*/qkv",
    "to": [rf"params/\1/{name}" for name in "qkv"],
    "axis": -1,
    "sizes": list(SIZES),
    "groups": 2,
}
CONCAT = {
    "op": "concat",
    "at": [f"params/*/{name}" for name in "qkv"],
    "to": r"params/\1/qkv",
    "axis": -1,
    "groups": 2,
}


def test_the_heads_of_a_fused_projection_come_apart_and_together_again(tmp_path: Path) -> None:
    tree = fused()
    source = saved(tmp_path / "a", tree)
    surgery.apply(source, str(tmp_path / "b"), plan_from_document({"edits": [SPLIT]}))
    parts = restored(tmp_path / "b")["params"]
    for name, layer in tree["params"].items():
        for kind, leaf in layer["qkv"].items():
            heads = np.split(
                leaf, 2, -1
            )  # of each head two places of the query, one of key, one of value
            for part, places in zip("qkv", ([0, 1], [2], [3]), strict=True):
                wanted = np.concatenate([head[..., places] for head in heads], -1)
                found = parts[name][part][kind]
                assert found.dtype == leaf.dtype
                np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))
    surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), plan_from_document({"edits": [CONCAT]}))
    back = restored(tmp_path / "c")["params"]
    for name, layer in tree["params"].items():
        for kind, leaf in layer["qkv"].items():
            assert back[name]["qkv"][kind].tobytes() == leaf.tobytes()


def test_names_in_braces_are_the_parts_in_their_order(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", fused())
    named = SPLIT | {"to": r"params/\1/{q,k,v}"}
    for name, edit in {"b": SPLIT, "c": named}.items():
        surgery.apply(source, str(tmp_path / name), plan_from_document({"edits": [edit]}))
    one, other = (restored(tmp_path / name)["params"]["block_1"] for name in "bc")
    for part in "qkv":
        assert other[part]["kernel"].tobytes() == one[part]["kernel"].tobytes()
    alone = {"op": "split", "at": "params/*/qkv", "to": r"params/\1/q", "axis": -1}
    with pytest.raises(PlanError, match="names one place"):
        surgery.apply(source, str(tmp_path / "d"), plan_from_document({"edits": [alone]}))


def test_the_inverse_of_each_is_the_other(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", fused())
    surgery.apply(source, str(tmp_path / "b"), plan_from_document({"edits": [SPLIT]}))
    (*_, last) = surgery.inverse(str(tmp_path / "b")).plan["edits"]
    at = [f"params/block_2/{part}" for part in "qkv"]
    assert last == {"op": "concat", "at": at, "to": "params/block_2/qkv", "axis": -1, "groups": 2}
    surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), plan_from_document({"edits": [CONCAT]}))
    (*_, last) = surgery.inverse(str(tmp_path / "c")).plan["edits"]
    del last["sizes"]
    assert last == {"op": "split", "at": "params/block_2/qkv", "to": at, "axis": -1, "groups": 2}


def test_values_that_an_edit_changes_in_a_part_come_back_to_the_whole(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", fused(layers=1))
    half = {"op": "rescale", "at": "params/*/q", "by": 0.3}
    moved = {"op": "rename", "at": "params/block_0/k", "to": "params/key"}
    edits = [SPLIT, half, moved, {**half, "at": "params/key"}]
    surgery.apply(source, str(tmp_path / "b"), plan_from_document({"edits": edits}))
    undo = surgery.inverse(str(tmp_path / "b")).plan
    surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), plan_from_document(undo))
    old, new = (restored(tmp_path / name)["params"]["block_0"]["qkv"] for name in "ac")
    assert {kind: leaf.tobytes() for kind, leaf in old.items()} == {
        kind: leaf.tobytes() for kind, leaf in new.items()
    }


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({**SPLIT, "sizes": [4, 2]}, "`sizes` has 2 numbers, and `to` 3 places"),
        ({**SPLIT, "sizes": [4, 2, 1]}, "`sizes` comes to 7, and"),
        ({**SPLIT, "sizes": []}, "has no 3 equal parts along axis"),
        ({**SPLIT, "sizes": [3, 3, 2]}, "`groups: 2` do not divide a part of 3 places"),
        ({**SPLIT, "axis": 2}, "axis: 2"),
        ({**SPLIT, "to": ["params/q", "params/k", "params/v"]}, "would both stand at 'params/q/"),
        ({**SPLIT, "to": [r"params/\1/q", r"params/\2/k", "params/v"]}, "refers to part 2"),
        ({**SPLIT, "at": "params/*/name"}, "does not apply to str"),
    ],
)
def test_what_cannot_be_split_is_named(edit: dict[str, Any], said: str, tmp_path: Path) -> None:
    tree = fused()
    tree["params"]["block_0"]["name"] = "text"
    source = saved(tmp_path / "a", tree)
    with pytest.raises(PlanError) as refused:
        surgery.plan(source, plan_from_document({"edits": [edit]}))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "edit", "said"),
    [
        (
            lambda p: p["block_1"].pop("k"),
            {},
            "'params/block_1/qkv/bias' would be made of 'params/block_1/q/bias', 'params/block_1/v/bias' alone",
        ),
        (
            lambda p: p["block_1"]["k"].update(kernel=np.ones((5, 2))),
            {},
            "'params/block_1/k/kernel' is float64[5,2], and others of its kind are float64[4,4]",
        ),
        (
            lambda p: p["block_0"]["k"].update(bias=np.ones(3)),
            {},
            "do not divide a part of 3 places",
        ),
        (lambda p: p["block_2"].update(qkv={"bias": 1}), {}, "stands there already"),
        (lambda p: None, {"at": "params/*/{q,k,v}"}, "does not say in which order"),
    ],
)
def test_what_cannot_be_joined_is_named(
    change: Any, edit: dict[str, Any], said: str, tmp_path: Path
) -> None:
    sizes = dict(zip("qkv", SIZES, strict=True))
    params = {
        f"block_{n}": {p: {"kernel": np.ones((4, s)), "bias": np.ones(s)} for p, s in sizes.items()}
        for n in range(3)
    }
    change(params)
    source = saved(tmp_path / "a", {"params": params})
    with pytest.raises(PlanError) as refused:
        surgery.plan(source, plan_from_document({"edits": [{**CONCAT, **edit}]}))
    assert said in str(refused.value)


def test_blocks_of_any_shape_are_what_numpy_says() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        shape = tuple(rng.integers(1, 4, rng.integers(1, 4)).tolist())
        axis, groups = int(rng.integers(len(shape))), int(rng.integers(1, 4))
        sizes = tuple((groups * np.append(rng.integers(0, 4, 3), 1)).tolist())
        leaves = []
        for size in sizes:
            own = (*shape[:axis], size, *shape[axis + 1 :])
            leaves.append(rng.normal(size=own).astype(np.float32))
        shares = [np.split(leaf, groups, axis) for leaf in leaves]
        whole = np.concatenate([s[n] for n in range(groups) for s in shares], axis)
        paths = [LeafPath((f"w{n}",)) for n in range(4)]
        inputs = tuple(stored(leaf, path) for leaf, path in zip(leaves, paths, strict=True))
        kernel = Concat(axis, sizes, groups)
        recipe = made(kernel, inputs, kernel.output(inputs[0].spec), paths[0])
        block = tuple(int(rng.integers(1, n + 1)) for n in whole.shape)
        arrays = dict(zip(paths, leaves, strict=True))
        np.testing.assert_array_equal(computed(recipe, arrays, block=block), whole)
        for part, leaf in zip(kernel.parts, leaves, strict=True):
            source = stored(whole, paths[0])
            cut = made(part, (source,), part.output(source.spec), paths[0])
            block = tuple(int(rng.integers(1, max(n, 1) + 1)) for n in leaf.shape)
            np.testing.assert_array_equal(computed(cut, {paths[0]: whole}, block=block), leaf)


def test_what_is_joined_and_taken_apart_in_one_plan_is_the_stored_leaf_by_reference() -> None:
    tree = {f"l_{n}": np.zeros((4, 6), np.float32) for n in range(3)}
    fused_leaf = {"w": np.zeros((4, 6), np.float32)}
    stack = {"op": "stack", "at": "l_{0..2}", "to": "l", "axis": 1}
    unstack = {"op": "unstack", "at": "l", "to": "l_{0..2}", "axis": 1}
    concat = {"op": "concat", "at": "l_{0..2}", "to": "l", "axis": 0, "groups": 2}
    split = {"op": "split", "at": "l", "to": "l_{0..2}", "axis": 0, "groups": 2}
    parts = {"op": "split", "at": "w", "to": ["a", "b"], "axis": 1, "sizes": [2, 4]}
    whole = {"op": "concat", "at": ["a", "b"], "to": "w", "axis": 1}
    rows = {"op": "unstack", "at": "w", "to": "w_{0..3}"}
    back = {"op": "stack", "at": "w_{0..3}", "to": "w"}
    for start, edits in (
        (tree, [stack, unstack]),
        (tree, [concat, split]),
        (fused_leaf, [parts, whole]),
        (fused_leaf, [rows, back]),
    ):
        draft = draft_of(start)
        for edit in plan_from_document({"edits": edits}).edits:
            draft = rewritten(edit, draft, ArrayScene())
        assert draft.changed == []
        assert draft.removed == []
        assert all(isinstance(output.recipe, Stored) for output in draft.leaves.values())


@pytest.mark.parametrize(
    ("op", "grid"),
    [
        ({"op": "stack", "at": "w_{0..1}", "to": "w"}, {"w": (1, 4, 6)}),
        ({"op": "stack", "at": "w_{0..1}", "to": "w", "axis": 1}, {"w": (4, 1, 6)}),
        ({"op": "concat", "at": "w_{0..1}", "to": "w", "axis": 0}, {"w": (4, 6)}),
        ({"op": "concat", "at": "w_{0..1}", "to": "w", "axis": 1}, {"w": (4, 6)}),
        ({"op": "unstack", "at": "w_0", "to": "r_{0..7}"}, {"r_0": (6,)}),
        ({"op": "split", "at": "w_0", "to": ["a", "b"], "axis": 0}, {"a": (4, 6), "b": (4, 6)}),
        ({"op": "split", "at": "w_0", "to": ["a", "b"], "axis": 1}, {"a": (4, 3), "b": (4, 3)}),
    ],
)
def test_the_grid_of_chunks_is_the_image_of_the_source(op: Any, grid: Any) -> None:
    import msgspec

    draft = draft_of({f"w_{n}": np.zeros((8, 6), np.float32) for n in range(2)})
    leaves = {
        path: out.with_spec(
            msgspec.structs.replace(out.spec, chunk_shape=(4, 6), write_shape=(4, 6))
        )
        for path, out in draft.leaves.items()
    }
    (edit,) = plan_from_document({"edits": [op]}).edits
    after = rewritten(edit, draft.with_leaves(leaves), ArrayScene())
    for name, chunk in grid.items():
        assert after.leaves[LeafPath((name,))].spec.chunk_shape == chunk
        assert after.leaves[LeafPath((name,))].spec.write_shape == chunk


def test_leaves_larger_than_the_memory_are_joined_and_cut_by_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tree = {f"w_{n}": rng.normal(size=(1024, 1024)).astype(np.float32) for n in range(4)}
    save_args = {name: ocp.SaveArgs(chunk_byte_size=1 << 20) for name in tree}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "a", args=ocp.args.PyTreeSave(tree, save_args=save_args))
    edits = [
        {"op": "concat", "at": "w_{0..3}", "to": "w", "axis": 1, "groups": 4},
        {"op": "split", "at": "w", "to": ["a", "b"], "axis": 1, "sizes": [1024, 3072], "groups": 2},
    ]
    for at, edit in zip(("a", "b"), edits, strict=True):
        there = str(tmp_path / ("b" if at == "a" else "c"))
        plan = plan_from_document({"edits": [edit]})
        surgery.apply(str(tmp_path / at), there, plan, options=Options(memory_bytes=24 << 20))
    shares = [np.split(leaf, 4, 1) for leaf in tree.values()]
    whole = np.concatenate([share[n] for n in range(4) for share in shares], 1)
    np.testing.assert_array_equal(restored(tmp_path / "b")["w"], whole)
    halves = np.split(whole, 2, 1)
    np.testing.assert_array_equal(
        restored(tmp_path / "c")["a"], np.concatenate([half[:, :512] for half in halves], 1)
    )
