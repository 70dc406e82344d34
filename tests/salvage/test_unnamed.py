"""What is stored, and named by no metadata: it is named, and comes back where something tells where it belongs."""

import json
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document

LAYOUTS = {
    "ocdbt": {},
    "ocdbt zarr3": {"use_zarr3": True},
    "folders": {"use_ocdbt": False},
    "folders zarr3": {"use_ocdbt": False, "use_zarr3": True},
}


def _tree():
    values = np.random.default_rng(0).standard_normal((24, 33)).astype(np.float32)
    params = {"kernel": values, "bias": values[0]}
    opt = [
        {"mu": {"kernel": values + 1, "bias": values[1]}},
        None,
        {"count": np.asarray(3, np.int32)},
    ]
    return {"params": params, "opt": opt, "name": "run 1", "step": 7}


@pytest.fixture(scope="module", params=LAYOUTS)
def saved(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "ck"
    handler = ocp.PyTreeCheckpointHandler(**LAYOUTS[request.param])
    ocp.Checkpointer(handler).save(place, args=ocp.args.PyTreeSave(_tree()))
    return place


@pytest.fixture
def broken(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "broken")


def _without(place, *names):
    """Take leaves out of ``_METADATA``, by names joined by dots; what was said of them."""
    metadata = json.loads((place / "_METADATA").read_text())
    tree = metadata["tree_metadata"]
    dotted = {".".join(part["key"] for part in tree[key]["key_metadata"]): key for key in tree}
    taken = {name: tree.pop(dotted[name]) for name in names}
    (place / "_METADATA").write_text(json.dumps(metadata))
    return metadata, taken


def _restored(place):
    """What Orbax restores with the original target."""
    handler = ocp.PyTreeCheckpointHandler()
    args = ocp.args.PyTreeRestore(
        _tree(), restore_args=ocp.checkpoint_utils.construct_restore_args(_tree())
    )
    return ocp.Checkpointer(handler).restore(place, args=args)


def _assert_whole(place):
    found, true = _restored(place), _tree()
    assert jax.tree.structure(found) == jax.tree.structure(true)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(true), strict=True):
        assert np.array_equal(one, other)


STORED = ["params.kernel", "params.bias", "opt.0.mu.kernel", "opt.2.count", "name", "step"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("knows", [None, "like", "fill_from"])
def test_every_leaf_that_metadata_leaves_out_comes_back(saved, tmp_path, knows):
    said = {"allow_partial": True} if knows is None else {knows: str(saved)}
    for name in STORED:
        broken = shutil.copytree(saved, tmp_path / name)
        _without(broken, name)

        done = surgery.rescue(str(broken), str(tmp_path / f"{name} new"), **said)

        path = name.replace(".", "/")
        assert any(f"named by no metadata: '{path}'" in note for note in done.notes)
        assert bool(done.structure_lacks) is (knows is None)
        _assert_whole(tmp_path / f"{name} new")


def test_a_leaf_that_metadata_calls_something_else_comes_back_and_the_other_name_is_lost(
    broken, tmp_path
):
    metadata, taken = _without(broken, "params.kernel")
    entry = taken["params.kernel"]
    entry["key_metadata"][-1]["key"] = "wrong"
    metadata["tree_metadata"]["('params', 'wrong')"] = entry
    (broken / "_METADATA").write_text(json.dumps(metadata))

    done = surgery.rescue(str(broken), str(tmp_path / "new"), allow_partial=True)

    assert [row.path for row in done.leaves if row.state == "lost"] == ["params/wrong"]
    _assert_whole(tmp_path / "new")


def test_what_is_said_to_be_empty_and_is_not_gives_way(broken, tmp_path):
    metadata, taken = _without(broken, "opt.0.mu.kernel", "opt.0.mu.bias")
    entry = taken["opt.0.mu.bias"]
    entry["key_metadata"].pop()
    entry["value_metadata"] = {"value_type": "Dict", "skip_deserialize": True}
    metadata["tree_metadata"]["('opt', '0', 'mu')"] = entry
    (broken / "_METADATA").write_text(json.dumps(metadata))

    surgery.rescue(str(broken), str(tmp_path / "new"), allow_partial=True)

    _assert_whole(tmp_path / "new")


def test_a_copy_of_a_leaf_put_aside_in_an_item_is_named_and_left_out(tmp_path):
    broken = tmp_path / "broken"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    ocp.Checkpointer(handler).save(broken, args=ocp.args.PyTreeSave(_tree()))
    shutil.copytree(broken / "params.kernel", broken / "params.kernel.bak")

    done = surgery.rescue(str(broken), str(tmp_path / "new"))

    assert any("'params.kernel.bak'; left out" in note for note in done.notes)
    _assert_whole(tmp_path / "new")


def test_what_an_edit_has_deleted_is_not_taken_for_stored(saved, tmp_path):
    edited = tmp_path / "edited"
    plan = plan_from_document({"edits": [{"op": "delete", "at": "params/kernel"}]})
    surgery.apply(str(saved), str(edited), plan)

    done = surgery.rescue(str(edited))

    assert not any("named by no metadata" in note for note in done.notes)
    assert not any(row.path.endswith("kernel") for row in done.leaves)
