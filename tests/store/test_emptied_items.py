"""A tree that has lost all its arrays takes new ones as its metadata say, and is restored as any other."""

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import WriteError
from surgery_cli.planning import plan_from_document
from surgery_cli.store.write import item as writers

LAYOUTS = [(ocdbt, zarr3) for ocdbt in (True, False) for zarr3 in (False, True)]
TREE = {"params": {"w": np.arange(6, dtype=np.float32), "b": np.ones((2, 3), np.float16)}}


@pytest.fixture(params=LAYOUTS, ids=["ocdbt-zarr2", "ocdbt-zarr3", "leaves-zarr2", "leaves-zarr3"])
def emptied(request, tmp_path):
    """The checkpoint, and the same without its arrays."""
    ocdbt, zarr3 = request.param
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "ck", TREE)
    apply(tmp_path / "ck", tmp_path / "empty", {"op": "delete", "at": "params/*"})
    return tmp_path / "ck", tmp_path / "empty"


def apply(source, new, *edits):
    return surgery.apply(str(source), str(new), plan_from_document({"edits": list(edits)}))


def restored(path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["undone", "grafted", "drawn"])
def test_an_emptied_tree_gets_arrays_that_orbax_restores(emptied, tmp_path, how):
    source, empty = emptied
    new = tmp_path / "new"
    if how == "undone":
        plan = surgery.inverse(str(empty)).plan
        surgery.apply(str(empty), str(new), plan_from_document(plan))
    elif how == "grafted":
        apply(empty, new, {"op": "merge", "at": ["params/w", "params/b"], "with": str(source)})
    else:
        more = {"op": "add", "shape": [6], "dtype": "float32", "init": "ones", "kind": "numpy"}
        apply(empty, new, {**more, "at": "params/w"})
    found = restored(new)["params"]
    wanted = {"w": np.ones(6, np.float32)} if how == "drawn" else TREE["params"]
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
    assert surgery.verify(str(new)).agrees
    assert (new / "manifest.ocdbt").exists() == (source / "manifest.ocdbt").exists()


def test_a_result_that_contradicts_its_metadata_is_refused(emptied, tmp_path, monkeypatch):
    source, empty = emptied
    if (source / "manifest.ocdbt").exists():
        pytest.skip("written as it is said")
    monkeypatch.setattr(writers, "is_per_leaf", lambda item: False)
    with pytest.raises(WriteError, match="Orbax could not restore it"):
        apply(
            empty,
            tmp_path / "new",
            {"op": "merge", "at": ["params/w", "params/b"], "with": str(source)},
        )
    assert not (tmp_path / "new").exists()
