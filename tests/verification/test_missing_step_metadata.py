"""`_CHECKPOINT_METADATA` that is gone: it is said where a restore needs it, and nowhere else; judged by Orbax."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.cli.conftest import surgery

__all__ = ["surgery"]

FILE = "_CHECKPOINT_METADATA"
TREE = {"w": np.arange(3, dtype=np.float32)}
LAYOUTS = {
    "two trees": {"a": ocp.args.StandardSave(TREE), "b": ocp.args.PyTreeSave(TREE)},
    "one tree": {"a": ocp.args.StandardSave(TREE)},
    "json beside": {"a": ocp.args.StandardSave(TREE), "j": ocp.args.JsonSave({"x": 1})},
}
SAID = "of any other one `restore(step)` alone fails"
HANDLERS = {
    "a": ocp.StandardCheckpointHandler,
    "b": ocp.PyTreeCheckpointHandler,
    "j": ocp.JsonCheckpointHandler,
}
OLD = Path(__file__).parents[1] / "fixtures" / "orbax-0.5.10" / "cm_composite"


def _run(folder, items, steps=(1, 2)):
    with ocp.CheckpointManager(folder) as manager:
        for number in steps:
            manager.save(number, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    return folder


def _is_restored(run, number, **made_with):
    with ocp.CheckpointManager(run, **made_with) as manager:
        try:
            manager.restore(number)
        except (ValueError, FileNotFoundError):
            return False
        return True


def _registry(items):
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    arguments = {
        "a": ocp.args.StandardRestore,
        "b": ocp.args.PyTreeRestore,
        "j": ocp.args.JsonRestore,
    }
    for name in items:
        registry.add(name, arguments[name], HANDLERS[name]())
    return registry


@pytest.mark.parametrize("layout", LAYOUTS)
def test_which_managers_need_it_is_what_is_said(tmp_path, layout):
    """It was said of all: "a manager's `restore(step)` alone fails"."""
    items = LAYOUTS[layout]
    run = _run(tmp_path / "run", items)
    (run / "2" / FILE).unlink()
    handlers = {name: HANDLERS[name]() for name in items}
    assert _is_restored(run, 2, item_handlers=handlers)
    assert _is_restored(run, 2, handler_registry=_registry(items))
    assert not _is_restored(run, 2)
    assert not _is_restored(run, 2, item_names=tuple(items))
    if len(items) > 1:
        assert not _is_restored(run, 2, item_handlers={"a": HANDLERS["a"]()})


def test_of_a_single_item_without_a_name_the_same_holds(surgery, tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(2, args=ocp.args.StandardSave(TREE))
        manager.wait_until_finished()
    (tmp_path / "run" / "2" / FILE).unlink()
    assert not _is_restored(tmp_path / "run", 2)
    assert _is_restored(tmp_path / "run", 2, item_handlers=ocp.StandardCheckpointHandler())
    assert SAID in " ".join(surgery("inspect", tmp_path / "run").out.split())


@pytest.mark.parametrize("beside", ["an item", "an empty folder"])
def test_of_folders_beside_the_items_on_record_it_is_said_what_handlers_do(
    surgery, tmp_path, beside
):
    run = _run(tmp_path / "run", LAYOUTS["one tree"])
    if beside == "an item":
        shutil.copytree(run / "2" / "a", run / "2" / "b")
    else:
        (run / "2" / "b").mkdir()
    handlers = {name: HANDLERS[name]() for name in "ab"}
    assert not _is_restored(run, 2)
    is_restored = _is_restored(run, 2, item_handlers=handlers)
    assert is_restored is (beside == "an item")
    told = " ".join(surgery("verify", run).out.split())
    assert "that `_CHECKPOINT_METADATA` names" in told
    assert (SAID in told) is is_restored
    assert ("a manager's `restore(step)` alone fails" in told) is not is_restored


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_that_lost_it_is_told_by_whatever_looks_at_it(surgery, tmp_path, layout):
    run = _run(tmp_path / "run", LAYOUTS[layout])
    assert _is_restored(run, 2)
    (run / "2" / FILE).unlink()
    assert not _is_restored(run, 2)
    at = "a/w" if layout == "two trees" else "w"
    looks = [
        ("doctor", run),
        ("inspect", run),
        ("inspect", run / "2"),
        ("verify", run),
        ("rescale", run, tmp_path / "new", at, "--by", "2"),
        ("rescale", run, tmp_path / "other", at, "--by", "2", "--dry-run"),
    ]
    for words in looks:
        told = surgery(*words)
        assert told.code == 0, told.err
        assert SAID in " ".join(f"{told.out} {told.err}".split()), words
    assert not _is_restored(tmp_path / "new", 2)
    with ocp.CheckpointManager(tmp_path / "new") as manager:
        given = ocp.args.Composite(a=ocp.args.StandardRestore(TREE))
        np.testing.assert_array_equal(manager.restore(2, args=given)["a"]["w"], TREE["w"] * 2)


@pytest.mark.parametrize("what", ["whole", "flat", "an item", "an old release", "put together"])
def test_nothing_is_said_where_no_restore_needs_it(surgery, tmp_path, what):
    run = _run(tmp_path / "run", LAYOUTS["two trees"])
    place = run
    if what == "flat":
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / "flat", TREE)
        place = tmp_path / "flat"
        (place / FILE).unlink()
        with ocp.StandardCheckpointer() as checkpointer:
            np.testing.assert_array_equal(checkpointer.restore(place)["w"], TREE["w"])
    elif what == "an item":
        (run / "2" / FILE).unlink()
        place = run / "2" / "a"
        with ocp.StandardCheckpointer() as checkpointer:
            np.testing.assert_array_equal(checkpointer.restore(place)["w"], TREE["w"])
    elif what == "an old release":
        place = shutil.copytree(OLD, tmp_path / "old")
    elif (
        what == "put together"
    ):  # by hand, of saves that have the file themselves: no release wrote one around them
        place = tmp_path / "mine" / "7"
        for name in ("a", "b"):
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(place / name, TREE)
        assert (place / "a" / FILE).exists()
    for command in ("inspect", "verify"):
        told = surgery(command, place)
        assert SAID not in " ".join(f"{told.out} {told.err}".split()), command


def test_another_step_tells_it_where_the_item_does_not(surgery, tmp_path):
    """Releases from 0.10 on wrote the file, and nothing in `_METADATA` shows that."""
    run = _run(tmp_path / "run", LAYOUTS["two trees"])
    (run / "2" / FILE).unlink()
    for name in ("a", "b"):
        metadata = run / "2" / name / "_METADATA"
        document = json.loads(metadata.read_text())
        del document["custom_metadata"]
        metadata.write_text(json.dumps(document))
    assert not _is_restored(run, 2)
    assert "is not there, and it is in step 1" in " ".join(surgery("verify", run).out.split())
    (run / "1" / FILE).unlink()
    assert SAID not in surgery("verify", run).out
