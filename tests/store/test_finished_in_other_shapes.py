"""A finished run, typed again, whose result has another shape than the source, or in which a training went on."""

import re
import shlex
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.store.cutting import Runs
from tests.store.test_finished_again import DONE, TREE, adding, contents, restored, save


@pytest.fixture(scope="module")
def run():
    with Runs() as runs:
        yield runs


def several(place):
    with ocp.CheckpointManager(place, item_names=("state", "more", "meta")) as manager:
        items = {
            "state": ocp.args.StandardSave(TREE),
            "more": ocp.args.StandardSave({"x": np.ones(3, np.float32)}),
            "meta": ocp.args.JsonSave({"x": 1}),
        }
        manager.save(3, args=ocp.args.Composite(**items), metrics={"loss": 1.0})


FORMS = {
    "root": ("{run}", "{new}"),
    "root, a number": ("{run}@3", "{new}"),
    "root, another number": ("{run}", "{new}", "--as-step", "7"),
    "root, one item": ("{run}", "{new}", "--item", "state"),
    "root, no metrics": ("{run}", "{new}", "--metrics", "drop"),
    "step": ("{run}/3", "{new}"),
    "step, as a step": ("{run}/3", "{new}/7"),
    "step, one item": ("{run}/3", "{new}", "--item", "state"),
    "item": ("{run}/3/state", "{new}"),
    "item, by its name": ("{run}/3/state", "{new}", "--item", "state"),
    "item, in a step": ("{run}/3/state", "{new}/5/state"),
    "item, as an item": ("{run}/3/state", "{new}/state"),
    "flat": ("{flat}", "{new}"),
    "flat, in a step": ("{flat}", "{new}/5/state"),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_made_of_each_shape_is_done_when_it_is_asked_for_again(run, tmp_path, form):
    """Of an item that is a checkpoint by itself it was said that it is not as a run has left it."""
    several(tmp_path / "run")
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "flat", TREE)
    places = {name: tmp_path / name for name in ("run", "flat", "new")}
    source, new, *options = (word.format_map(places) for word in FORMS[form])
    words = ("rescale", source, new, "**/a", "--by", "2", "--quiet", "--resume", *options)
    assert run(*words)["code"] == 0
    before = contents(tmp_path / "new")
    assert run(*words) == DONE
    ended = run(*words, "--dry-run")
    assert ended["code"] == 0, ended
    assert contents(tmp_path / "new") == before


def test_of_an_item_by_itself_what_comes_along_is_looked_at(run, tmp_path):
    several(tmp_path / "run")
    new = tmp_path / "new"
    words = ("rescale", tmp_path / "run" / "3" / "state", new, "a", "--by", "2", "--resume")
    assert run(*words, "--quiet")["code"] == 0
    files = [file for file in new.iterdir() if file.is_file() and file.name != "commit_success.txt"]
    for file in [file for file in files if file.stat().st_size]:
        held = file.read_bytes()
        file.unlink()
        ended = run(*words)
        assert (ended["code"], file.exists()) == (2, False), (file, ended)
        assert file.name in ended["said"] or "no record of a run" in ended["said"]
        file.write_bytes(held)
    assert run(*words, "--quiet") == DONE


@pytest.mark.parametrize("options", [(), ("--as-step", "7")], ids=["3", "7"])
def test_a_training_that_went_on_in_the_result_leaves_it_done(run, tmp_path, options):
    """Of the newest step there was no record, and `--force` was advised, by which it would have gone."""
    root, new = tmp_path / "run", tmp_path / "new"
    save(root, 3)
    words = ("rescale", root, new, "a", "--by", "2", "--quiet", "--resume", *options)
    assert run(*words)["code"] == 0
    save(new, 12, factor=5)
    before = contents(new)
    assert run(*words) == DONE
    other = [word if word != "2" else "3" for word in words]
    ended = run(*other)
    assert (ended["code"], contents(new)) == (2, before)
    assert "add `--force`" not in ended["said"]
    assert "`--force` would remove step 12 there as well" in ended["said"]
    made = options[1] if options else "3"
    (new / made / "surgery.json").rename(tmp_path / "record")
    ended = run(*words)
    assert ended["code"] == 2
    assert "it has no record of a run" in ended["said"]
    assert "`--force` would remove step 12 there as well" in ended["said"]
    shutil.rmtree(new / made)
    ended = run(*words)
    assert ended["code"] == 2
    assert f"it has no step {made}" in ended["said"]
    assert "`--force` would remove step 12 there as well" in ended["said"]
    np.testing.assert_array_equal(restored(new, 12)["a"], TREE["a"] * 5)


@pytest.mark.parametrize("kept", [None, 200], ids=["gone", "cut"])
def test_a_step_without_its_record_is_not_made_anew_by_force_and_what_is_said_works(
    run, tmp_path, kept
):
    """`--force` was advised, and refused; and the step itself was named as what is to be read."""
    root = tmp_path / "run"
    save(root, 3)
    assert run(*adding(root))["code"] == 0
    record = root / "10" / "surgery.json"
    held = record.read_bytes()
    record.unlink()
    if kept is not None:
        record.write_bytes(held[:kept])
    before = contents(root)
    ended = run(*adding(root))
    assert (ended["code"], contents(root)) == (2, before)
    assert "--force" not in ended["said"]
    assert f"with '{root}@3' as what is read" in ended["said"]
    itself = run(*adding(root, source=f"{root}@10"))
    assert (itself["code"], contents(root)) == (2, before)
    assert "rm -r" not in itself["said"]
    (removal,) = re.findall("remove that step first: `rm -r (.*)`", ended["said"])
    shutil.rmtree(*shlex.split(removal))
    assert run(*adding(root))["code"] == 0
    np.testing.assert_array_equal(restored(root, 10)["a"], TREE["a"] * 2)
