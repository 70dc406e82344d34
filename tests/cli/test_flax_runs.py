"""Runs whose steps are files of Flax: what is written there is restored by Flax itself, which looks at names alone."""

import json
import shutil

import numpy as np
import pytest
from flax import config
from flax.training import checkpoints

from surgery_cli import surgery as use_cases
from surgery_cli.store.filesystem.names import name_of_record

TREE = {"params": {"w": np.arange(8, dtype=np.float32), "b": np.ones(3, np.float32)}}


@pytest.fixture(params=["checkpoint_", "model_", ""])
def run(request, tmp_path):
    """A run of two steps, and the prefix of their names."""
    return saved(tmp_path, request.param), request.param


def saved(tmp_path, prefix):
    before = config.flax_use_orbax_checkpointing
    config.update("flax_use_orbax_checkpointing", False)
    for step in (3, 5):
        checkpoints.save_checkpoint(str(tmp_path / "run"), TREE, step=step, prefix=prefix, keep=5)
    config.update("flax_use_orbax_checkpointing", before)
    return tmp_path / "run"


def check(place, prefix, name, factor):
    assert checkpoints.latest_checkpoint(str(place), prefix) == str(place / name)
    found = checkpoints.restore_checkpoint(str(place), None, prefix=prefix)
    np.testing.assert_array_equal(found["params"]["w"], TREE["params"]["w"] * np.float32(factor))
    np.testing.assert_array_equal(found["params"]["b"], TREE["params"]["b"])


def rescale(surgery, source, new, *more):
    done = surgery("rescale", source, new, "params/w", "--by", "2", *more)
    assert done.code == 0, done.err


@pytest.mark.parametrize("said", ["the run", "a step of it", "the step itself"])
def test_flax_restores_the_edited_step_and_its_record_is_known(surgery, run, tmp_path, said):
    """It took the record for the last step, whose name goes on behind the number, and could not read it."""
    root, prefix = run
    new, last = tmp_path / "new", f"{prefix}5"
    if said == "the step itself":
        new.mkdir()
        source, target = root / last, new / last
    else:
        source, target = {"the run": root, "a step of it": f"{root}@5"}[said], new
    rescale(surgery, source, target)
    check(new, prefix, last, 2)
    assert json.loads((new / name_of_record(last)).read_text())["draft"]
    assert use_cases.verify(str(target)).agrees
    assert len(use_cases.log(str(target)).entries) == 1
    rescale(surgery, source, target, "--force")
    assert sorted(path.name for path in new.iterdir()) == sorted([last, name_of_record(last)])
    check(new, prefix, last, 2)
    rescale(surgery, target, tmp_path / "again" if new == target else new / f"{prefix}6")
    place, name = (tmp_path / "again", last) if new == target else (new, f"{prefix}6")
    check(place, prefix, name, 4)


def test_a_seal_and_a_new_step_hide_no_step_either(surgery, run):
    root, prefix = run
    assert surgery("seal", root / f"{prefix}5").code == 0
    check(root, prefix, f"{prefix}5", 1)
    assert use_cases.verify(str(root / f"{prefix}5")).agrees
    rescale(surgery, root, root, "--as-step", "7")
    check(root, prefix, f"{prefix}7", 2)


def test_a_record_of_before_is_found_under_the_name_that_it_had(surgery, run, tmp_path):
    root, prefix = run
    rescale(surgery, root, tmp_path / "new")
    record = tmp_path / "new" / name_of_record(f"{prefix}5")
    shutil.move(record, tmp_path / "new" / f"{prefix}5.surgery.json")
    assert len(use_cases.log(str(tmp_path / "new")).entries) == 1


@pytest.mark.parametrize("is_ours", [True, False])
def test_of_a_record_under_its_older_name_none_is_left_with_force(surgery, run, is_ours):
    root, prefix = run
    new = root / f"{prefix}7"
    rescale(surgery, root / f"{prefix}5", new)
    older = root / f"{new.name}.surgery.json"
    shutil.move(root / name_of_record(new.name), older)
    if not is_ours:
        older.write_text("theirs")
    rescale(surgery, root / f"{prefix}5", new, "--force")
    assert (root / name_of_record(new.name)).is_file()
    assert older.exists() != is_ours
    if is_ours:
        check(root, prefix, new.name, 2)


@pytest.mark.parametrize("prefix", ["checkpoint_", "", "model", "ck.", "1.", "v2_"])
@pytest.mark.parametrize("how", ["edited", "forced", "sealed", "rescued"])
def test_no_record_beside_a_step_is_the_newest_step_of_any_prefix(surgery, tmp_path, prefix, how):
    """Flax takes all that begins with its prefix for a step: with `''` all that stands there, hidden or not."""
    root = saved(tmp_path, prefix)
    old, new = root / f"{prefix}5", root / f"{prefix}7"
    if how == "sealed":
        new = old
        assert surgery("seal", old).code == 0
    elif how == "rescued":
        assert surgery("rescue", old, new).code == 0
    else:
        rescale(surgery, old, new)
        if how == "forced":
            rescale(surgery, old, new, "--force")
    check(root, prefix, new.name, 2 if how in ("edited", "forced") else 1)
    assert [path.name for path in root.iterdir() if path.name.endswith("surgery.json")] == [
        name_of_record(new.name)
    ]
    assert use_cases.verify(str(new)).agrees
