"""Whatever small file is damaged, what a rescue writes is what `verify` and `doctor` call whole, and Orbax restores."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError

TREE = {"w": jnp.arange(8.0), "n": np.arange(3.0), "key": jax.random.key(3)}
FILES = (
    "state/_METADATA",
    "state/_sharding",
    "state/array_metadatas/process_0",
    "_CHECKPOINT_METADATA",
)


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    items = {"state": ocp.args.PyTreeSave(TREE), "about": ocp.args.JsonSave({"epoch": 2})}
    with ocp.CheckpointManager(root, item_names=tuple(items)) as manager:
        manager.save(7, args=ocp.args.Composite(**items))
    return root / "7"


def _restored(step):
    state = ocp.PyTreeCheckpointer().restore(
        step / "state", restore_args=ocp.checkpoint_utils.construct_restore_args(TREE)
    )
    return jax.tree.map(np.asarray, {"w": state["w"], "n": state["n"]})


def _is_sound(step, sound_key):
    assert surgery.verify(str(step)).findings == []
    (found,) = surgery.doctor(str(step), settled_seconds=0).places
    assert found.state == "whole", found.why
    back = _restored(step)
    assert np.array_equal(back["w"], TREE["w"])
    assert np.array_equal(back["n"], TREE["n"])
    if sound_key:
        key = ocp.PyTreeCheckpointer().restore(
            step / "state", restore_args=ocp.checkpoint_utils.construct_restore_args(TREE)
        )["key"]
        assert np.array_equal(jax.random.key_data(key), jax.random.key_data(TREE["key"]))


def _places(text, config):
    """Characters of a file, of all kinds: names, punctuation, numbers; every seventeenth, or every seventh."""
    return range(1, len(text), 7 if config.getoption("every_combination") else 17)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("file", FILES)
def test_what_comes_of_a_flipped_character_has_no_finding(step, file, tmp_path, pytestconfig):
    """Each is refused, with a reason, or what was written is sound: no third way."""
    text = (step / file).read_bytes()
    places = _places(text, pytestconfig)
    written = 0
    for at in places:
        broken, new = tmp_path / f"b{at}", tmp_path / f"n{at}"
        shutil.copytree(step, broken)
        (broken / file).write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        try:
            report = surgery.rescue(str(broken), str(new), allow_partial=True)
        except SurgeryError:
            continue
        lost = {row.path for row in report.leaves if row.state != "whole"}
        if not lost:
            written += 1
        assert surgery.verify(str(new)).findings == [], at
        (found,) = surgery.doctor(str(new), settled_seconds=0).places
        assert found.state == "whole", (at, found.why)
        if file != "state/_METADATA":
            assert report.whole == 3, at
            back = _restored(new)
            assert np.array_equal(back["w"], TREE["w"])
            assert np.array_equal(back["n"], TREE["n"])
    assert written > len(places) // 3
    assert file != "state/_sharding" or written == len(places)


def _edited(step, tmp_path, file, edit):
    broken = tmp_path / "broken"
    shutil.copytree(step, broken)
    document = json.loads((broken / file).read_text())
    edit(document)
    (broken / file).write_text(json.dumps(document))
    report = surgery.rescue(str(broken), str(tmp_path / "new"))
    return report, tmp_path / "new"


def _notes(report):
    return " ".join(map(str, report.notes))


def test_what_says_how_a_random_key_is_cut_is_made_anew(step, tmp_path):
    """Without its entry, Orbax would restore plain numbers."""

    def edit(document):
        for entry in document["array_metadatas"]:
            entry["array_metadata"]["write_shap"] = entry["array_metadata"].pop("write_shape")

    report, new = _edited(step, tmp_path, "state/array_metadatas/process_0", edit)
    assert "'array_metadatas/process_0' is wrong about" in _notes(report)
    _is_sound(new, sound_key=True)


@pytest.mark.parametrize("damage", ["null", "gone", "another type", "of another item"])
def test_a_sharding_that_is_none_is_left_out_and_named(step, tmp_path, damage):
    def edit(document):
        first = next(iter(document))
        text = document.pop(first)
        if damage == "null":
            document[first] = None
        if damage == "another type":
            document[first] = text.replace("SingleDeviceSharding", "Sharding")
        if damage == "of another item":
            document.clear()
            document["YQ=="] = text

    report, new = _edited(step, tmp_path, "state/_sharding", edit)
    assert damage == "gone" or "'_sharding' is wrong about" in _notes(report)
    _is_sound(new, sound_key=True)


def test_an_item_that_is_left_out_is_not_on_record(step, tmp_path):
    """Else `verify` misses it in the result, and a manager asks for it."""
    broken, new = tmp_path / "broken", tmp_path / "new"
    shutil.copytree(step, broken)
    shutil.rmtree(broken / "about")
    report = surgery.rescue(str(broken), str(new), allow_partial=True)
    assert [one.name for one in report.lost_items] == ["about"]
    assert (report.lost, report.whole) == (0, len(report.leaves))
    assert "about" not in (new / "_CHECKPOINT_METADATA").read_text()
    _is_sound(new, sound_key=True)
