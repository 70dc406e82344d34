"""Trees that are whole, if odd: keys that hold slashes or nothing, and trees that v1 saved in parts."""

from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(path: Path, tree: object, **settings: bool) -> Path:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**settings)) as checkpointer:
        checkpointer.save(path, tree)
    return path


def restored(path: Path) -> object:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def is_same(one: object, other: object) -> bool:
    same = jax.tree.map(np.array_equal, one, other)
    return jax.tree.all(same)


def test_documents_name_leaves_that_print_alike_by_their_spelling(surgery, tmp_path):
    tree = {"a/b": {"w": W}, "a": {"b": {"w": W + 1}}}
    source = saved(tmp_path / "x", tree)
    rows = surgery("inspect", source, "--json").document["leaves"]
    assert [row["path"] for row in rows] == ["a/b/w", "a%2Fb/w"]
    applied = surgery("rescale", source, tmp_path / "y", "**", "--by", "2", "--json").document
    assert [leaf["from"] for leaf in applied["leaves"]] == ["a/b/w", "a%2Fb/w"]
    gone = surgery("delete", source, tmp_path / "z", "a%2Fb", "--json").document
    assert gone["removed"] == ["a%2Fb/w"]


@pytest.mark.parametrize("use_ocdbt", [True, False])
@pytest.mark.parametrize("key", ["", "q//c"])
def test_keys_that_a_leaf_brings_along_may_be_odd(surgery, tmp_path, key, use_ocdbt):
    if key and not use_ocdbt:
        pytest.skip("a folder for each leaf: Orbax makes one path of two slashes")
    tree = {"a": {key: W, "b": W + 1}, "s": W + 2}
    source = saved(tmp_path / "x", tree, use_ocdbt=use_ocdbt)
    result = surgery("rename", source, tmp_path / "y", "a", "--to", "z")
    assert result.code == 0, result.err
    assert is_same(restored(tmp_path / "y"), {"s": tree["s"], "z": tree["a"]})
    surgery("rename", source, tmp_path / "u", "s", "--to", "t")
    assert is_same(restored(tmp_path / "u"), {"a": tree["a"], "t": tree["s"]})


def test_a_key_that_is_newly_empty_is_refused(surgery, tmp_path):
    source = saved(tmp_path / "x", {"a": {"": W, "b": W}, "s": W})
    result = surgery("rename", source, tmp_path / "y", "s", "--to", "t/")
    assert result.code == 2
    assert "a key in it is empty" in result.err


def test_a_tree_that_was_saved_in_parts_is_edited_as_any_other(surgery, tmp_path):
    v1.partial.save(tmp_path / "x", {"a": W})
    v1.partial.save(tmp_path / "x", {"b": {"c": W + 1}})
    v1.partial.finalize(tmp_path / "x")
    assert "2 leaves" in surgery("inspect", tmp_path / "x").out
    result = surgery("rescale", tmp_path / "x", tmp_path / "y", "a", "--by", "2")
    assert result.code == 0, result.err
    assert is_same(v1.load(tmp_path / "y"), {"a": 2 * W, "b": {"c": W + 1}})


def test_what_a_save_left_is_never_said_to_be_waste(surgery, tmp_path):
    saved(tmp_path / "7.orbax-checkpoint-tmp", {"a": W})
    for path in (tmp_path, tmp_path / "7.orbax-checkpoint-tmp"):
        result = surgery("inspect", path)
        assert result.code == 3
        assert not any(word in result.err for word in ("delete", "remove", "rm -"))
