"""Leaves whose description is lost are read by another's, if that is said, and all that stands there agrees."""

import json
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError

LAYOUTS = {"zarr2": {}, "zarr3": {"use_zarr3": True}}
DOCUMENTS = {"zarr2": ".zarray", "zarr3": "zarr.json"}
DAMAGES = {
    "removed": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:40]),
}


def _tree(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    params = {
        "query": {"kernel": draw((24, 33)).astype("f4"), "bias": draw(33).astype("f4")},
        "back": {"kernel": draw((33, 24)).astype("f4"), "bias": draw(24).astype("f4")},
        "scale": draw(()).astype("f4"),
    }
    moments = {"mu": jax.tree.map(lambda v: v + 1, params), "nu": jax.tree.map(np.square, params)}
    tree = {"params": params, "opt": [{**moments, "count": np.asarray(3, "i4")}]}
    return jax.tree.map(np.asarray, tree)


def _save(place, tree, layout):
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, **LAYOUTS[layout])
    ocp.Checkpointer(handler).save(place, args=ocp.args.PyTreeSave(tree))
    return place


@pytest.fixture(scope="module", params=LAYOUTS)
def saved(request, tmp_path_factory):
    """A checkpoint, an older step of the same tree, and the name of the files that describe leaves."""
    folder = tmp_path_factory.mktemp("saved")
    step, older = (_save(folder / f"{n}", _tree(n), request.param) for n in (0, 1))
    return step, older, DOCUMENTS[request.param]


def _names(place, document):
    return sorted(file.parent.name for file in place.glob(f"*/{document}"))


def _restored(place, tree):
    args = ocp.args.PyTreeRestore(
        tree, restore_args=ocp.checkpoint_utils.construct_restore_args(tree)
    )
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(place, args=args)


def _assert_true(place, tree):
    for one, other in zip(
        jax.tree.leaves(_restored(place, tree)), jax.tree.leaves(tree), strict=True
    ):
        assert np.asarray(one).dtype == other.dtype
        assert np.array_equal(one, other)


def _row(report, name):
    return next(row for row in report.leaves if row.path == name.replace(".", "/"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("said", ["like", "fill_from"])
def test_the_same_leaf_of_another_step_describes_it(saved, tmp_path, damage, said):
    step, older, document = saved
    names = _names(step, document)
    broken = shutil.copytree(step, tmp_path / "broken")
    for name in names:
        DAMAGES[damage](broken / name / document)

    done = surgery.rescue(str(broken), str(tmp_path / "new"), **{said: str(older)})

    assert {row.path for row in done.leaves if row.state == "whole"} == {
        name.replace(".", "/") for name in names
    }
    assert {row.described_by for row in done.leaves} == {str(older)}
    assert any(str(older) in str(note) and "float32[24,33]" in str(note) for note in done.notes)
    record = json.loads((tmp_path / "new" / "surgery.json").read_text())["rescued"]
    assert {one["described_by"] for one in record.values()} == {str(older)}
    _assert_true(tmp_path / "new", _tree())


@pytest.mark.sampled(2)
def test_a_leaf_of_its_kind_describes_it_on_a_condition_that_is_on_record(saved, tmp_path):
    step, _, document = saved
    for name in _names(step, document):
        broken = shutil.copytree(step, tmp_path / name)
        (broken / name / document).unlink()

        row = _row(surgery.rescue(str(broken)), name)

        if name.endswith("count"):
            assert (row.state, row.why) == ("lost", "nothing that describes it was found")
            continue
        assert (row.state, row.described_by.split("/")[-1]) == ("whole", name.split(".")[-1])
        assert row.assumes == "they have the shape and dtype of the leaf that describes them"
        with pytest.raises(CheckpointError, match="may hold other values than were saved"):
            surgery.rescue(str(broken), str(tmp_path / "new"))
        done = tmp_path / f"{name} new"
        surgery.rescue(str(broken), str(done), allow_partial=True)
        origin = json.loads((done / "surgery.json").read_text())["rescued"][row.path]
        assert (origin["described_by"], origin["assumes"]) == (row.described_by, row.assumes)
        _assert_true(done, _tree())


def test_a_digest_on_record_needs_no_condition(saved, tmp_path):
    step, _, document = saved
    broken = shutil.copytree(step, tmp_path / "broken")
    surgery.seal(str(broken))
    (broken / "params.query.kernel" / document).unlink()

    row = _row(surgery.rescue(str(broken)), "params.query.kernel")

    assert (row.state, row.proof, row.assumes) == ("whole", "digest", "")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_two_descriptions_that_fit_none_is_taken(tmp_path, layout):
    """The length to which chunks decode does not tell integers from floats."""
    tree = {
        "a": {"x": np.arange(8, dtype="f4")},
        "b": {"x": np.arange(8, dtype="i4")},
        "c": {"x": np.arange(8, dtype="f4") + 1},
    }
    broken = _save(tmp_path / "broken", tree, layout)
    (broken / "c.x" / DOCUMENTS[layout]).unlink()

    row = _row(surgery.rescue(str(broken)), "c.x")

    assert row.state == "lost"
    assert "'a/x' and 'b/x' would both fit" in row.why


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "other", [np.ones(9, "f4"), np.ones(8, "f8"), np.ones((2, 4), "f4"), np.ones(8, "i2")]
)
def test_what_stored_chunks_disagree_with_describes_nothing(tmp_path, layout, other):
    broken = _save(tmp_path / "broken", {"x": np.arange(8, dtype="f4"), "y": {"x": other}}, layout)
    like = _save(tmp_path / "like", {"x": other, "y": {"x": other}}, layout)
    (broken / "x" / DOCUMENTS[layout]).unlink()

    for said in ({}, {"like": str(like)}):
        row = _row(surgery.rescue(str(broken), **said), "x")
        assert (row.state, row.why) == ("lost", "nothing that describes it was found")


def test_a_chunk_that_is_missing_is_lost_whoever_describes_the_leaf(saved, tmp_path):
    _, _, document = saved
    layout = next(name for name, file in DOCUMENTS.items() if file == document)
    devices = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spread = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec())
    values = jax.device_put(np.arange(64, dtype="f4"), spread)
    args = {"x": ocp.SaveArgs(chunk_byte_size=64), "y": {"x": ocp.SaveArgs(chunk_byte_size=64)}}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, **LAYOUTS[layout])
    like = tmp_path / "like"
    tree = {"x": values, "y": {"x": values}}
    ocp.Checkpointer(handler).save(like, args=ocp.args.PyTreeSave(tree, save_args=args))
    broken = shutil.copytree(like, tmp_path / "broken")
    (broken / "x" / document).unlink()
    last = max(file for file in (broken / "x").rglob("*") if file.is_file())
    last.unlink()

    assert _row(surgery.rescue(str(broken)), "x").state == "lost"
    row = _row(surgery.rescue(str(broken), like=str(like)), "x")
    assert (row.state, row.share, row.missing) == ("partly", 0.75, ["[48:64]"])
