"""What doctor proposes for a save that was killed does what it says, as Orbax's restore shows."""

import json
import re
import shlex
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError

MOST_OF_A_KERNEL = 2500
"""Bytes; a kernel has 3,168 of random numbers, which hardly compress, and nothing else is as large."""


def _state(step, width=33):
    values = step * np.random.default_rng(0).standard_normal((24, width)).astype(np.float32)
    opt = [{"mu": values + 1}, None]
    return {"params": {"kernel": values, "bias": values[0]}, "opt": opt, "lr": 0.5 * step}


@pytest.fixture(scope="module", params=[True, False], ids=["ocdbt", "folders"])
def saved(request, tmp_path_factory):
    """Steps 1 to 3 of a tree and a document; step 2 has other shapes."""
    root = tmp_path_factory.mktemp("run") / "run"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=request.param)
    handlers = {"state": handler, "meta": ocp.JsonCheckpointHandler()}
    with ocp.CheckpointManager(root, item_handlers=handlers) as manager:
        for step in (1, 2, 3):
            state = _state(step, 50 if step == 2 else 33)
            items = {"state": ocp.args.PyTreeSave(state), "meta": ocp.args.JsonSave({"s": step})}
            manager.save(step, args=ocp.args.Composite(**items))
    return root


@pytest.fixture
def run(saved, tmp_path):
    """The same with its last save as a kill leaves it: nothing on record of its items, and none of them renamed."""
    root = shutil.copytree(saved, tmp_path / "run")
    step = (root / "3").rename(root / "3.orbax-checkpoint-tmp")
    record = json.loads((step / "_CHECKPOINT_METADATA").read_text())
    record |= {"item_handlers": None, "commit_timestamp_nsecs": None}
    (step / "_CHECKPOINT_METADATA").write_text(json.dumps(record))
    for item in ("state", "meta"):
        (step / item).rename(step / f"{item}.orbax-checkpoint-tmp")
    (step / "state.orbax-checkpoint-tmp" / "_METADATA").unlink()
    return root


def _lose_the_kernel(run):
    item = run / "3.orbax-checkpoint-tmp" / "state.orbax-checkpoint-tmp"
    chunks = [file for file in (item / "params.kernel").glob("*") if file.name != ".zarray"]
    for file in chunks or item.rglob("d/*"):  # now and then, Orbax leaves what it wrote in two
        if file.stat().st_size > MOST_OF_A_KERNEL:
            file.unlink()


def _proposals(run):
    """The arguments of every `rescue … NEW` that doctor proposes for the save that was killed."""
    rows = surgery.doctor(str(run), settled_seconds=0).places
    (row,) = (row for row in rows if row.path.startswith("3"))
    for words in map(shlex.split, re.findall("`surgery rescue ([^`]* NEW[^`]*)`", row.todo)):
        flags = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
        given = {
            name: words[words.index(f"--{name.replace('_', '-')}") + 1]
            for name in flags
            if name != "allow_partial"
        }
        yield words[0], given | {"allow_partial": "allow_partial" in flags}


def _restored(place):
    target = _state(3)
    arguments = ocp.checkpoint_utils.construct_restore_args(target)
    args = ocp.args.PyTreeRestore(target, restore_args=arguments)
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(place, args=args)


def _is_same(one, other):
    same = jax.tree.structure(one) == jax.tree.structure(other)
    return same and all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def test_of_a_killed_save_of_several_items_what_is_there_comes_back_as_proposed(run, tmp_path):
    proposals = list(_proposals(run))

    assert proposals
    for number, (broken, given) in enumerate(proposals):
        surgery.rescue(broken, str(tmp_path / f"{number}"), **given)
        assert _is_same(_restored(tmp_path / f"{number}" / "state"), _state(3))


def test_a_killed_save_of_several_items_is_filled_as_proposed(run, tmp_path):
    _lose_the_kernel(run)
    proposals = [(broken, given) for broken, given in _proposals(run) if "fill_from" in given]

    ((broken, given),) = proposals
    done = surgery.rescue(broken, str(tmp_path / "new"), **given)

    found, own, older = _restored(tmp_path / "new" / "state"), _state(3), _state(1)
    filled = {row.path.removeprefix("state/") for row in done.leaves if row.filled_from}
    assert "params/kernel" in filled
    assert all(row.state == "whole" or row.filled_from for row in done.leaves)
    assert [one.name for one in done.lost_items] == ["meta"]
    for path, value in jax.tree_util.tree_leaves_with_path(found):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        true = older if name in filled else own
        assert np.array_equal(value, dict(_named(true))[name]), name


@pytest.mark.parametrize("lost", ["meta", "state"])
@pytest.mark.parametrize("is_filled", [False, True], ids=["", "filled"])
def test_an_item_that_is_gone_is_said_to_be_filled_by_nothing(saved, tmp_path, lost, is_filled):
    """A rescue fills leaves of trees that are there; what it says instead is done here."""
    root = shutil.copytree(saved, tmp_path / "run")
    given = {"fill_from": str(root / "1")} if is_filled else {}
    if lost == "meta":
        (root / "3" / "meta" / "metadata").write_bytes(b"")
    else:
        shutil.copytree(root / "3" / "state", root / "3" / "more")
        known = json.loads((root / "3" / "_CHECKPOINT_METADATA").read_text())
        known["item_handlers"]["more"] = known["item_handlers"]["state"]
        (root / "3" / "_CHECKPOINT_METADATA").write_text(json.dumps(known))
        shutil.rmtree(root / "3" / "state")
    with pytest.raises(CheckpointError) as refused:
        surgery.rescue(str(root / "3"), str(tmp_path / "new"), **given)
    (problem,) = refused.value.problems
    assert problem.fix.startswith(f"copy '{lost}' again from where it is whole, or `--allow")
    shutil.rmtree(root / "3" / lost, ignore_errors=True)
    shutil.copytree(saved / "3" / lost, root / "3" / lost)
    surgery.rescue(str(root / "3"), str(tmp_path / "new"), **given)
    assert _is_same(_restored(tmp_path / "new" / "state"), _state(3))


def _named(tree):
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path, simple=True, separator="/"), value


@pytest.mark.parametrize("older", ["1", "1/state", "."])
def test_however_the_older_step_is_named_its_only_tree_fills_the_only_one(run, tmp_path, older):
    _lose_the_kernel(run)
    shutil.rmtree(run / "2")

    broken = run / "3.orbax-checkpoint-tmp"
    surgery.rescue(
        str(broken), str(tmp_path / "new"), fill_from=str(run / older), allow_partial=True
    )

    kernel = _restored(tmp_path / "new" / "state")["params"]["kernel"]
    assert np.array_equal(kernel, _state(1)["params"]["kernel"])


def test_an_older_step_of_other_shapes_is_not_proposed_and_named_where_it_is_refused(run, tmp_path):
    _lose_the_kernel(run)
    broken = str(run / "3.orbax-checkpoint-tmp")

    with pytest.raises(PlanError) as raised:
        surgery.rescue(broken, str(tmp_path / "new"), fill_from=str(run), allow_partial=True)
    assert f"of '{run}@2' does not fit" in str(raised.value)

    assert [given["fill_from"] for _, given in _proposals(run) if "fill_from" in given] == [
        str(run / "1")
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", ["gone", "empty", "metadata alone"])
@pytest.mark.parametrize("lacks", [None, "arr", "meta", "metrics"])
def test_of_a_step_without_its_tree_it_is_said_what_beside_it_is_whole(tmp_path, damage, lacks):
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in (1, 2):
            items = {
                "state": ocp.args.StandardSave({"w": np.ones(9)}),
                "arr": ocp.args.ArraySave(np.ones(9)),
                "meta": ocp.args.JsonSave({"s": 1}),
            }
            manager.save(step, args=ocp.args.Composite(**items), metrics={"loss": 1.0})
    step = tmp_path / "run" / "2"
    shutil.rmtree(step / "state")
    if damage != "gone":
        (step / "state").mkdir()
    if damage == "metadata alone":
        (step / "state" / "_METADATA").touch()
    for file in (step / lacks).rglob("*") if lacks else ():
        if file.is_file():
            file.unlink()

    rows = surgery.doctor(str(tmp_path / "run"), settled_seconds=0).places
    (row,) = (row for row in rows if row.path == "2")

    whole = [f"'{name}'" for name in ("arr", "meta", "metrics") if name != lacks]
    said = f"{', '.join(whole[:-1])} and {whole[-1]} beside it are whole"
    assert row.state == "damaged"
    assert "no whole leaf was found" in row.todo
    assert said in row.todo
    assert not row.leaves
