"""A rescue of a sealed step: nothing goes into the result as if it were what was sealed, and is not."""

import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError

META = {"step": 7, "name": "run"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A step with one tree, a document, an array, a random key and metrics; sealed."""
    root = tmp_path_factory.mktemp("run") / "run"
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(root, options=options) as manager:
        items = ocp.args.Composite(
            state=ocp.args.StandardSave({"w": np.arange(400.0)}),
            meta=ocp.args.JsonSave(META),
            arr=ocp.args.ArraySave(np.arange(1000.0)),
            rng=ocp.args.JaxRandomKeySave(jax.random.key(3)),
        )
        manager.save(7, args=items, metrics={"loss": 0.5})
    surgery.seal(str(root / "7"))
    return root / "7"


@pytest.fixture
def step(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run" / "7")


def _beside_the_tree(step):
    """Every file that was sealed and is in no tree of leaves."""
    others = ("state", "surgery.json", "commit_success.txt")
    files = (file.relative_to(step) for file in sorted(step.rglob("*")) if file.is_file())
    return [file for file in files if file.parts[0] not in others]


@pytest.mark.parametrize("damage", ["flipped", "gone", "beside it"])
def test_whatever_beside_the_tree_is_not_what_was_sealed_is_lost_and_left_out(
    saved, tmp_path, damage
):
    tops = set()
    for number, name in enumerate(_beside_the_tree(saved)):
        if name.parts[0] in tops or (damage == "beside it" and len(name.parts) == 1):
            continue
        if not (saved / name).stat().st_size and damage == "flipped":
            continue
        tops.add(name.parts[0])
        step, new = shutil.copytree(saved, tmp_path / f"{number}" / "7"), tmp_path / f"{number}/new"
        file = step / name
        if damage == "flipped":
            raw = bytearray(file.read_bytes())
            raw[len(raw) // 2] ^= 1
            file.write_bytes(raw)
        elif damage == "gone":
            file.unlink()
        else:
            (file.parent / "added").write_text("{}")

        found = surgery.rescue(str(step))
        assert all(row.state == "whole" for row in found.leaves)
        assert [one.name for one in found.lost_items] == [name.parts[0]], name
        with pytest.raises(CheckpointError, match=f"'{name.parts[0]}' is lost as a whole"):
            surgery.rescue(str(step), str(new))
        assert not new.exists()
        surgery.rescue(str(step), str(new), allow_partial=True)

        assert not (new / name).exists() or name.name == "_CHECKPOINT_METADATA"
        found = ocp.StandardCheckpointer().restore(new / "state", {"w": np.zeros(400)})
        assert np.array_equal(found["w"], np.arange(400.0))
    assert len(tops) >= 4


def test_what_is_as_it_was_sealed_comes_back(step):
    (step / "state" / "_sharding").write_text("{")

    surgery.rescue(str(step), str(step.parent / "8"))

    with ocp.CheckpointManager(step.parent) as manager:
        items = ocp.args.Composite(
            state=ocp.args.StandardRestore({"w": np.zeros(400)}),
            meta=ocp.args.JsonRestore(),
            arr=ocp.args.ArrayRestore(),
            rng=ocp.args.JaxRandomKeyRestore(),
        )
        found = manager.restore(8, args=items)
        assert manager.metrics(8) == {"loss": 0.5}
    assert np.array_equal(found["state"]["w"], np.arange(400.0))
    assert found["meta"] == META
    assert np.array_equal(found["arr"], np.arange(1000.0))
    assert np.array_equal(*map(jax.random.key_data, (found["rng"], jax.random.key(3))))


def test_a_file_that_came_later_and_belongs_to_no_item_is_no_loss(step, tmp_path):
    (step / "notes.txt").write_text("mine")

    surgery.rescue(str(step), str(tmp_path / "new"))

    assert (tmp_path / "new" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("item", ["arr/checkpoint", "rng/jax_random_key/checkpoint"])
def test_without_a_seal_an_array_beside_the_tree_that_does_not_decode_is_lost(
    saved, tmp_path, item
):
    step = shutil.copytree(saved, tmp_path / "7")
    (step / "surgery.json").unlink()
    (chunk,) = (file for file in (step / item).iterdir() if not file.name.startswith("."))
    chunk.write_bytes(bytes(chunk.stat().st_size))

    name = item.split("/")[0]
    with pytest.raises(CheckpointError, match=f"'{name}' is lost as a whole"):
        surgery.rescue(str(step), str(tmp_path / "new"))
    surgery.rescue(str(step), str(tmp_path / "new"), allow_partial=True)
    assert not (tmp_path / "new" / name).exists()
