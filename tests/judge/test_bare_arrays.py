"""A bare array as the whole tree, in every layout that Orbax saves it in: read, edited, moved below a key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.set import Set
from surgery_cli.planning import plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.surgery import Options
from surgery_cli.tree.paths import LeafPath
from tests.source_trees import everything_of

VALUES = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)


def _pytree(*, use_ocdbt: bool, use_zarr3: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def save(path: Path, tree: Any) -> None:
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt, use_zarr3=use_zarr3)
        with ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(path, tree)

    def restore(path: Path) -> Any:
        with ocp.PyTreeCheckpointer() as checkpointer:
            return checkpointer.restore(path)

    return save, restore


LAYOUTS = {
    "ocdbt-zarr2": _pytree(use_ocdbt=True, use_zarr3=False),
    "ocdbt-zarr3": _pytree(use_ocdbt=True, use_zarr3=True),
    "leaf-zarr2": _pytree(use_ocdbt=False, use_zarr3=False),
    "leaf-zarr3": _pytree(use_ocdbt=False, use_zarr3=True),
    "v1": (v1.save, v1.load),
}

EDITS: dict[str, tuple[Operation, Any]] = {
    "rescale": (Rescale(at="**", by=2.0), 2 * VALUES),
    "cast": (Cast(to="bfloat16"), jnp.asarray(VALUES, jnp.bfloat16)),
    "replace": (Replace(at="**", with_=3.0), np.full_like(VALUES, 3)),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    save, restore = LAYOUTS[request.param]
    save(tmp_path / "x", VALUES)
    return tmp_path / "x", restore


def test_it_is_read_and_nothing_of_it_is_foreign(layout: Any) -> None:
    path, _ = layout
    found = surgery.inspect(str(path))
    assert [(leaf.path, leaf.shape) for leaf in found.leaves] == [("", (30, 40))]
    assert found.foreign_files == []
    np.testing.assert_array_equal(open_checkpoint(str(path)).read(LeafPath()), VALUES)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compact", ["never", "always"])
@pytest.mark.parametrize("edit", EDITS)
def test_orbax_restores_what_was_edited(
    layout: Any, tmp_path: Path, edit: str, compact: Any
) -> None:
    path, restore = layout
    before = everything_of(path)
    operation, wanted = EDITS[edit]
    surgery.apply(
        str(path), str(tmp_path / "y"), plan_of([operation]), options=Options(compact=compact)
    )
    restored = restore(tmp_path / "y")
    assert restored.dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(restored), np.asarray(wanted))
    assert surgery.verify(str(tmp_path / "y")).agrees
    assert everything_of(path) == before


@pytest.mark.parametrize("compact", ["never", "always"])
def test_it_is_moved_below_a_key(layout: Any, tmp_path: Path, compact: Any) -> None:
    path, restore = layout
    edit = plan_of([Rename(at="**", to="a/w")])
    surgery.apply(str(path), str(tmp_path / "y"), edit, options=Options(compact=compact))
    restored = restore(tmp_path / "y")
    assert list(restored) == ["a"]
    np.testing.assert_array_equal(restored["a"]["w"], VALUES)


def test_a_bare_number_is_set(tmp_path: Path) -> None:
    v1.save(tmp_path / "x", 5)
    surgery.apply(str(tmp_path / "x"), str(tmp_path / "y"), plan_of([Set(at="**", to=7)]))
    assert v1.load(tmp_path / "y") == 7


def test_nothing_is_put_beside_a_bare_array(tmp_path: Path) -> None:
    v1.save(tmp_path / "x", VALUES)
    with pytest.raises(PlanError, match="no place for others beside it"):
        surgery.apply(str(tmp_path / "x"), str(tmp_path / "y"), plan_of([Copy(at="**", to="a")]))
    assert not (tmp_path / "y").exists()


def test_the_root_as_it_prints_is_answered_with_the_pattern_that_names_it(tmp_path: Path) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", VALUES)
    for look in (
        lambda: surgery.inspect(str(tmp_path / "x"), ["."]),
        lambda: surgery.plan(str(tmp_path / "x"), plan_of([Rescale(at=".", by=2.0)])),
    ):
        with pytest.raises(PlanError, match="root prints") as caught:
            look()
        assert "`**`" in caught.value.problems[0].fix
