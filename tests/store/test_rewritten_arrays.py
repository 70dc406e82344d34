"""Arrays that are written where others stood: what is left below their names."""

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.ocdbt import OcdbtStore


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _edited(tmp_path: Path, tree: dict[str, np.ndarray], edits: list[Any], **options: Any) -> Any:
    """``tree`` after the edits, as Orbax restores it, and what is stored below each name."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", tree)
        plan = plan_of(edits)
        new = tmp_path / "new"
        given = surgery.Options(compact="never", **options)
        surgery.apply(str(tmp_path / "source"), str(new), plan, options=given)
        store = PytreeItem(new).store
        assert isinstance(store, OcdbtStore)
        return checkpointer.restore(new), store


def test_two_arrays_are_written_of_which_one_has_the_others_name_in_front(tmp_path: Path) -> None:
    tree = {"w": _values(8, 8), "w/b": _values(8), "a": _values(4)}
    edits = [operation_from_options("rescale", {"at": at, "by": 2.0}) for at in ("w%2Fb", "w")]
    restored, store = _edited(tmp_path, tree, edits, memory_bytes=1)
    np.testing.assert_array_equal(restored["w"], 2 * tree["w"])
    np.testing.assert_array_equal(restored["w/b"], 2 * tree["w/b"])
    np.testing.assert_array_equal(restored["a"], tree["a"])
    assert set(store.arrays["w"].keys) == {".zarray", "0.0"}


def test_nothing_is_left_of_the_array_that_stood_there(tmp_path: Path) -> None:
    tree = {"w": _values(6, 4), "n": _values(24)}
    edits = [
        operation_from_options("delete", {"at": "w"}),
        operation_from_options("rename", {"at": "n", "to": "w"}),
        operation_from_options("rescale", {"at": "w", "by": 2.0}),
    ]
    restored, store = _edited(tmp_path, tree, edits)
    np.testing.assert_array_equal(restored["w"], 2 * tree["n"])
    assert set(store.arrays["w"].keys) == {".zarray", "0"}


@pytest.mark.parametrize(
    ("operation", "fields", "left"),
    [
        ("delete", {"at": "c%2Fc"}, {"c"}),
        ("delete", {"at": "c"}, {"c/c"}),
        ("rename", {"at": "c%2Fc", "to": "d"}, {"c", "d"}),
        ("rename", {"at": "c", "to": "d"}, {"c/c", "d"}),
        ("rescale", {"at": "c%2Fc", "by": 1.0}, {"c", "c/c"}),
    ],
)
def test_a_leaf_that_is_called_like_the_chunks_of_another_leaves_them_alone(
    tmp_path: Path, operation: str, fields: dict[str, Any], left: set[str]
) -> None:
    tree = {"c": _values(64, 64), "c/c": _values(32, 32), "other": _values(5)}
    plan = plan_of([operation_from_options(operation, fields)])
    handler = ocp.PyTreeCheckpointHandler(use_zarr3=True)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "source", args=ocp.args.PyTreeSave(tree))
        new = tmp_path / "new"
        options = surgery.Options(compact="never")
        surgery.apply(str(tmp_path / "source"), str(new), plan, options=options)
        restored = checkpointer.restore(new)
    assert set(restored) == {*left, "other"}
    for name, values in restored.items():
        was = "c/c" if name == "d" and "c" in left else "c" if name == "d" else name
        np.testing.assert_array_equal(values, tree[was])
