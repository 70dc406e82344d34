"""A leaf whose only key is the empty text, which Orbax stores at the root of the store, in every layout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.operations.base import Operation
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_of
from tests.judge.test_bare_arrays import LAYOUTS

Tree = dict[str, Any]
EMPTY = np.arange(6, dtype=np.float32).reshape(2, 3)
ALONE: Tree = {"": EMPTY}
BESIDE: Tree = {"": EMPTY, "b": np.ones(4, np.float32)}
AS_CHUNKS: Tree = {**BESIDE, "c": np.full(5, 3, np.float32)}
"""With a leaf that is called like the folder in which chunks of zarr 3 stand."""


def _each(change: Callable[[str, Any], Any]) -> Callable[[Tree], Tree]:
    return lambda tree: {key: change(key, leaf) for key, leaf in tree.items()}


EDITS: dict[str, tuple[Operation, Callable[[Tree], Tree]]] = {
    "all": (Rescale(at="**", by=2.0), _each(lambda _, leaf: leaf * 2)),
    "it alone": (Rescale(at="re:", by=2.0), _each(lambda key, x: x if key else x * 2)),
    "all others": (
        Rescale(at="?*", by=2.0, optional=True),
        _each(lambda key, x: x * 2 if key else x),
    ),
    "all to bfloat16": (Cast(to="bfloat16"), _each(lambda _, x: np.asarray(x, jnp.bfloat16))),
    "its axes": (Transpose(at="re:"), _each(lambda key, x: x if key else x.T)),
    "below a key": (
        Rename(at="re:()", to="x"),
        lambda tree: {key or "x": leaf for key, leaf in tree.items()},
    ),
    "others elsewhere": (
        Rename(at="re:([bc])", to=r"y\1", optional=True),
        lambda tree: {"y" + key if key else key: leaf for key, leaf in tree.items()},
    ),
    "without others": (Delete(at="?*", optional=True), lambda tree: {"": tree[""]}),
}


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("tree", [ALONE, BESIDE, AS_CHUNKS], ids=["alone", "beside", "as chunks"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - {"v1"}))
def test_orbax_restores_every_edit_of_it(layout: str, tree: Tree, tmp_path: Path) -> None:
    save, restore = LAYOUTS[layout]
    save(tmp_path / "x", tree)
    for name, (operation, expected) in EDITS.items():
        target = tmp_path / name
        surgery.apply(str(tmp_path / "x"), str(target), plan_of([operation]))
        assert surgery.verify(str(target)).agrees
        restored, wanted = restore(target), expected(tree)
        assert restored.keys() == wanted.keys(), name
        for key, leaf in wanted.items():
            assert restored[key].dtype == leaf.dtype, name
            np.testing.assert_array_equal(restored[key], leaf, err_msg=name)


@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - {"v1"}))
def test_it_is_taken_from_a_donor_that_has_it(layout: str, tmp_path: Path) -> None:
    save, restore = LAYOUTS[layout]
    save(tmp_path / "x", AS_CHUNKS)
    save(tmp_path / "donor", {key: leaf + 1 for key, leaf in AS_CHUNKS.items()})
    edit = Replace(at="re:", with_=str(tmp_path / "donor"))
    surgery.apply(str(tmp_path / "x"), str(tmp_path / "y"), plan_of([edit]))
    restored = restore(tmp_path / "y")
    np.testing.assert_array_equal(restored[""], EMPTY + 1)
    np.testing.assert_array_equal(restored["c"], AS_CHUNKS["c"])
