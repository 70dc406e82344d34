"""What becomes of a run: a run, in which a manager finds the step; of a step a step, of an item an item."""

import json
import re
import shlex
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.configurations import config
from flax.training import checkpoints as training

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, DestinationError, PlanError
from surgery_cli.proof.records import read_record
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.cli.conftest import surgery as command

__all__ = ["command"]

PADDED = ocp.path.step.standard_name_format(step_prefix="ckpt", step_format_fixed_length=6)


def _state(step):
    values = step * np.random.default_rng(0).standard_normal((24, 33)).astype(np.float32)
    return {"params": {"kernel": values}, "opt": [{"mu": values + 1}, None], "lr": 0.5 * step}


def _options(names=None):
    return ocp.CheckpointManagerOptions(
        step_name_format=names, best_fn=lambda seen: seen["loss"], enable_async_checkpointing=False
    )


def _saved(root, *steps, names=None):
    """A run of a tree, a document and metrics, with what managers and scripts keep beside the steps."""
    with ocp.CheckpointManager(root, options=_options(names), metadata={"who": "me"}) as manager:
        for step in steps:
            items = {"state": ocp.args.StandardSave(_state(step))}
            items["meta"] = ocp.args.JsonSave({"s": step})
            args = ocp.args.Composite(**items)
            manager.save(step, args=args, metrics={"loss": 1 / step})
    (root / "config.yaml").write_text("width: 5\n")
    (root / "logs").mkdir()
    (root / "logs" / "events").write_bytes(b"\0" * 9)
    return root


def _killed(step):
    """A save as a kill leaves it: everything is there but its name."""
    return step.rename(step.with_name(f"{step.name}.orbax-checkpoint-tmp-17"))


def _lacking(step):
    """A step without what says where its values stand."""
    (step / "state" / "manifest.ocdbt").unlink()


def _found(root, names=None):
    """What a script restores that takes the newest step, with its path alone changed; and what it is."""
    with ocp.CheckpointManager(root, options=_options(names)) as manager:
        step = manager.latest_step()
        assert step is not None
        items = {"state": ocp.args.StandardRestore(jax.tree.map(np.zeros_like, _state(step)))}
        items["meta"] = ocp.args.JsonRestore()
        got = manager.restore(step, args=ocp.args.Composite(**items))
        assert got.meta == {"s": step}
        assert manager.metrics(step) == {"loss": 1 / step}
        assert not _differ(got.state, _state(step))
        return step, manager.metadata().custom_metadata if names is None else None


def _stands(run):
    return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in run.rglob("*")}


def _differ(one, other):
    is_same = jax.tree.structure(one) == jax.tree.structure(other)
    return not is_same or not all(map(np.array_equal, *map(jax.tree.leaves, (one, other))))


RUNS = {
    "its only save was killed": ([11], None, "{run}", _killed),
    "a padded name": ([11], PADDED, "{run}", _killed),
    "its only step is damaged": ([11], None, "{run}", _lacking),
    "a damaged one of two": ([7, 11], None, "{run}@11", _lacking),
    "a killed one of two": ([7, 11], PADDED, "{run}@11", _killed),
    "nothing is wrong": ([7, 11], None, "{run}@11", lambda _: None),
}

EXPECTED = {kind: {"inspect", "doctor"} for kind in RUNS} | {
    "nothing is wrong": set(),
    "a killed one of two": {"doctor"},  # commands open the one that is whole
}
"""Who advises something."""


@pytest.mark.parametrize("kind", RUNS)
def test_of_a_run_comes_a_run_in_which_a_manager_finds_the_step(tmp_path, kind):
    steps, names, named, harm = RUNS[kind]
    run = _saved(tmp_path / "run", *steps, names=names)
    called = "11" if names is None else "ckpt_000011"
    harm(run / called)
    before = _stands(run)

    done = surgery.rescue(named.format(run=run), str(tmp_path / "new"))

    step, about = _found(tmp_path / "new", names)
    assert (step, done.destination, done.destination_step) == (11, str(tmp_path / "new"), called)
    assert about == ({"who": "me"} if names is None else None)
    beside = {file.name for file in (tmp_path / "new").iterdir()}
    assert beside == {called, "metadata", "config.yaml"}  # logs are not of the run, as in edits
    assert (tmp_path / "new" / "config.yaml").read_text() == "width: 5\n"
    assert done.record == str(tmp_path / "new" / called / "surgery.json")
    assert _stands(run) == before

    opened = open_checkpoint(str(tmp_path / "new"))  # which goes on as every other run
    assert opened.location.shape == "root"
    assert read_record(opened) is not None
    assert surgery.verify(str(tmp_path / "new"), allow_non_finite=True).agrees


def test_a_run_of_v1_stays_one(tmp_path):
    from orbax.checkpoint import v1

    tree = {"w": np.arange(3.0)}
    with v1.training.Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(11, tree)
    _killed(tmp_path / "run" / "11")
    surgery.rescue(str(tmp_path / "run"), str(tmp_path / "new"))
    with v1.training.Checkpointer(tmp_path / "new") as checkpointer:
        assert checkpointer.latest.step == 11
        assert np.array_equal(checkpointer.load()["w"], tree["w"])


def _flat(folder, *names):
    for name in names:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / name, _state(3))
    return folder


@pytest.mark.parametrize("name", ["7", "checkpoint_7", "ckpt_000007"])
def test_steps_without_items_are_steps(tmp_path, name):
    """Trees that are called like steps, and stand in no step, are no items of one."""
    run = _flat(tmp_path / "run", name)
    (run / "config.yaml").write_text("width: 5\n")
    about = json.loads((run / name / "_CHECKPOINT_METADATA").read_text())
    _killed(run / name)

    done = surgery.rescue(str(run), str(tmp_path / "new"))

    assert done.destination_step == name
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new" / name, _state(3))
    assert not _differ(found, _state(3))
    assert json.loads((tmp_path / "new" / name / "_CHECKPOINT_METADATA").read_text()) == about
    assert (tmp_path / "new" / "config.yaml").exists()
    assert (tmp_path / "new" / name / "surgery.json").exists()


@pytest.mark.parametrize("is_recorded", [True, False], ids=["", "before it was on record"])
def test_of_several_steps_without_items_one_is_to_be_named(tmp_path, is_recorded):
    run = _flat(tmp_path / "run", "7", "8")
    for step in ("7", "8") if not is_recorded else ():
        (run / step / "_CHECKPOINT_METADATA").unlink()
    with pytest.raises(PlanError, match="is no one checkpoint") as refused:
        surgery.rescue(str(run), str(tmp_path / "new"))
    assert refused.value.problems[0].why == "'7' and '8' stand there"


def test_items_that_are_called_like_steps_stay_items(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        trees = {name: ocp.args.StandardSave(_state(3)) for name in ("1", "2")}
        manager.save(5, args=ocp.args.Composite(**trees))
    _killed(tmp_path / "run" / "5")
    surgery.rescue(str(tmp_path / "run"), str(tmp_path / "new"))
    with ocp.CheckpointManager(tmp_path / "new", item_names=("1", "2")) as manager:
        got = manager.restore(
            5, args=ocp.args.Composite(**{"2": ocp.args.StandardRestore(_state(3))})
        )
    assert not _differ(got["2"], _state(3))


def test_of_a_step_comes_a_step_and_of_an_item_an_item(tmp_path):
    run = _saved(tmp_path / "run", 11)
    killed = _killed(run / "11")

    step = surgery.rescue(str(killed), str(tmp_path / "new" / "11"))
    item = surgery.rescue(str(killed / "state"), str(tmp_path / "item"))

    assert (step.destination_step, item.destination_step) == (None, None)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["11"]
    assert _found(tmp_path / "new")[0] == 11
    with ocp.StandardCheckpointer() as checkpointer:
        assert not _differ(checkpointer.restore(tmp_path / "item", _state(11)), _state(11))


@pytest.mark.parametrize(
    "where", ["alone", "beside another", "beside what is left", "under another number"]
)
def test_a_destination_that_is_a_step_by_its_name_is_that_step(tmp_path, where):
    """A run in the place of a step would be no manager's, neither there nor one level above."""
    run = _saved(tmp_path / "run", 11)
    _killed(run / "11")
    place = run if where == "beside what is left" else tmp_path / "new"
    name = "12" if where == "under another number" else "11"
    if where in ("beside another", "under another number"):
        _saved(place, 7)

    done = surgery.rescue(str(run), str(place / name))

    assert done.destination_step is None
    said = f"'{run}' is a run, and '{place / name}' a step by its name: a manager finds it in '{place}'"
    assert any(said in note for note in done.notes)
    with ocp.CheckpointManager(place, options=_options()) as manager:
        assert manager.latest_step() == int(name)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(_state(11)))
        assert not _differ(manager.restore(int(name), args=args).state, _state(11))


def test_a_run_may_have_a_number_for_its_name(tmp_path):
    """As those of a sweep have: nothing beside it is a step, nor is it called as the step in it."""
    _killed(_saved(tmp_path / "sweep" / "0", 11) / "11")
    _killed(_saved(tmp_path / "sweep" / "1", 11) / "11")
    for name in ("0", "1"):
        surgery.rescue(str(tmp_path / "sweep" / name), str(tmp_path / "rescued" / name))
        assert _found(tmp_path / "rescued" / name)[0] == 11


@pytest.mark.parametrize(
    ("destination", "words"),
    [(".", "is the source itself"), ("new", "lies inside the source"), ("..", "holds the source")],
)
def test_nothing_is_written_into_the_run_but_a_step(tmp_path, destination, words):
    run = _saved(tmp_path / "a" / "run", 11)
    _killed(run / "11")
    with pytest.raises(DestinationError, match=words) as refused:
        surgery.rescue(str(run), str(run / destination))
    assert "remove it" not in str(refused.value)
    if destination == "new":
        assert f"or '{run}/11', which becomes a step of that run" in refused.value.problems[0].fix


def test_a_run_that_a_killed_run_of_surgery_was_building_becomes_one(tmp_path):
    run = _saved(tmp_path / "run", 11)
    built = tmp_path / ".new.surgery-tmp-0123abcd"
    built.mkdir()
    shutil.move(run, built / "new")
    surgery.rescue(str(built), str(tmp_path / "new"))
    assert _found(tmp_path / "new")[0] == 11


@pytest.mark.parametrize("kind", RUNS)
def test_what_is_advised_of_a_run_makes_one(tmp_path, kind):
    """By `inspect`, where a destination is added, and by `doctor`, where NEW is named."""
    steps, names, _, harm = RUNS[kind]
    run = _saved(tmp_path / "run", *steps, names=names)
    harm(run / ("11" if names is None else "ckpt_000011"))
    said = {}
    try:
        surgery.inspect(str(run))
    except CheckpointError as error:
        if named := re.search("`surgery rescue ([^` ]+)`", error.problems[0].fix):
            said["inspect"] = (named[1], "NEW")
    for row in surgery.doctor(str(run), settled_seconds=0).places:
        if named := re.search("`surgery rescue ([^`]* NEW[^`]*)`", row.todo):
            said["doctor"] = named[1].split()
    assert said.keys() >= EXPECTED[kind]
    for by, (broken, new) in said.items():
        surgery.rescue(broken, new.replace("NEW", str(tmp_path / by)))
        assert _found(tmp_path / by, names)[0] == 11


def test_the_report_names_the_step(tmp_path, command):
    _killed(_saved(tmp_path / "run", 11) / "11")
    ended = command("rescue", tmp_path / "run", tmp_path / "new")
    assert f" leaves in step '11' of {tmp_path}/new, read back and the same" in ended.out
    _killed(_saved(tmp_path / "other", 12) / "12")
    ended = command("rescue", tmp_path / "other", tmp_path / "more", "--json")
    report = json.loads(ended.out)
    assert (report["destination"], report["destination_step"]) == (f"{tmp_path}/more", "12")


def _without_structure(step):
    (step / "state" / "_METADATA").unlink()


@pytest.mark.parametrize(
    ("steps", "taken"),
    [([11], 11), ([12, 13], 13), ([7, 11, 13], 7), ([5, 7], 7)],
    ids=lambda given: str(given).replace(" ", ""),
)
def test_a_run_is_like_what_is_broken_whatever_its_age(tmp_path, steps, taken):
    """Of the structure alone a later step tells as well: the newest before is taken, else the newest."""
    run = _saved(tmp_path / "run", 11)
    _without_structure(run / "11")
    other = _saved(tmp_path / "other", *steps)

    done = surgery.rescue(f"{run}@11", str(tmp_path / "new"), like=str(other))

    assert _found(tmp_path / "new")[0] == 11  # into the original target, None and all
    assert any(f"come from another checkpoint, '{other}@{taken}'" in note for note in done.notes)


@pytest.mark.parametrize("harm", [_without_structure, _lacking], ids=["names alone", "damaged"])
def test_a_step_that_lacks_its_own_structure_is_what_nothing_is_like(tmp_path, harm):
    run = _saved(tmp_path / "run", 11, 12, 13)
    for step in ("11", "13"):
        _without_structure(run / step)
    if harm is _lacking:
        _lacking(run / "13")
    done = surgery.rescue(f"{run}@11", str(tmp_path / "new"), like=str(run))
    assert _found(tmp_path / "new")[0] == 11
    assert any(f"come from another checkpoint, '{run}@12'" in note for note in done.notes)


def test_a_run_is_not_like_itself(tmp_path):
    run = _saved(tmp_path / "run", 11)
    _without_structure(run / "11")
    with pytest.raises(CheckpointError, match=r"no step of .* is whole, but for '11' itself"):
        surgery.rescue(f"{run}@11", str(tmp_path / "new"), like=str(run))


@pytest.mark.parametrize(
    ("steps", "offered"), [([11], 11), ([13, 19], 13), ([11, 12], 11)], ids=str
)
def test_a_run_without_an_older_step_fills_where_one_is_named_as_is_said(tmp_path, steps, offered):
    run, other = _saved(tmp_path / "run", 11), _saved(tmp_path / "other run", *steps)
    _lose_values(run / "11")

    with pytest.raises(CheckpointError, match="is whole and older than '11'") as refused:
        surgery.rescue(f"{run}@11", str(tmp_path / "new"), fill_from=str(other))

    (problem,) = refused.value.problems
    assert problem.fix.startswith(f"`--fill-from '{other}@{offered}'` takes that all the same; or")
    named = shlex.split(problem.fix.split("`")[1])[1]
    surgery.rescue(f"{run}@11", str(tmp_path / "new"), fill_from=named)
    with ocp.CheckpointManager(tmp_path / "new", options=_options()) as manager:
        args = ocp.args.Composite(state=ocp.args.StandardRestore(_state(0)))
        got = manager.restore(11, args=args).state
    assert np.array_equal(got["params"]["kernel"], _state(offered)["params"]["kernel"])


def test_the_broken_step_is_offered_to_nobody(tmp_path):
    run = _saved(tmp_path / "run", 11)
    _lose_values(run / "11")
    with pytest.raises(CheckpointError, match="is whole and older than '11'") as refused:
        surgery.rescue(f"{run}@11", str(tmp_path / "new"), fill_from=str(run))
    assert refused.value.problems[0].fix == "name another checkpoint"


def _lose_values(step):
    """Of the kernels, which are of random numbers and too large for a node; ``lr`` stays."""
    for data in (step / "state").rglob("d/*"):
        if data.stat().st_size > 1000:
            data.unlink()


def test_of_a_step_that_is_a_file_a_run_is_advised_that_flax_restores(tmp_path):
    """What was typed was refused, for nothing in a file proves it, and made a file of whatever name."""
    with config.temp_flip_flag("use_orbax_checkpointing", False):
        for step in (4, 5):
            tree = {"a": np.full(3, step), "w": np.full((40, 40), step)}
            training.save_checkpoint(tmp_path / "run", tree, step, keep=2)
    with (tmp_path / "run" / "checkpoint_5").open("ab") as file:
        file.write(b"more")
    _, row = surgery.doctor(str(tmp_path / "run"), settled_seconds=0).places
    assert row.state == "damaged"
    (words,) = re.findall("`surgery rescue ([^`]* NEW[^`]*)`", row.todo)
    broken, new, option, older, *more = shlex.split(words)
    assert (new, option, more) == ("NEW", "--fill-from", ["--allow-partial"])
    surgery.rescue(broken, str(tmp_path / "new"), fill_from=older, allow_partial=True)
    assert training.latest_checkpoint(tmp_path / "new") == str(tmp_path / "new" / "checkpoint_5")
    found = training.restore_checkpoint(tmp_path / "new", None)
    assert np.array_equal(found["a"], np.full(3, 5))


@pytest.mark.parametrize("twin", [False, True], ids=["", "two of a number"])
def test_of_several_steps_one_is_named_such_that_a_run_comes_of_it(tmp_path, twin):
    run = _saved(tmp_path / "run", 7, 11)
    killed = _killed(run / "11")
    if twin:
        shutil.copytree(killed, run / "0011.orbax-checkpoint-tmp-18")
    with pytest.raises(PlanError, match="is no one checkpoint") as refused:
        surgery.rescue(str(run), str(tmp_path / "new"))
    named = refused.value.problems[0].fix.split("'")[1]
    assert named == (f"{run}/0011.orbax-checkpoint-tmp-18" if twin else f"{run}@11")
    surgery.rescue(named, str(tmp_path / "new"))
    if not twin:
        assert _found(tmp_path / "new")[0] == 11


def test_a_destination_called_as_a_step_of_a_run_is_refused_with_what_this_command_can_do(tmp_path):
    run, other = _saved(tmp_path / "run", 11), _saved(tmp_path / "other", 7)
    with pytest.raises(DestinationError, match="names a step of the run") as refused:
        surgery.rescue(str(run), f"{other}@11")
    named = refused.value.problems[0].fix.split("'")[1]
    assert named == f"{other}/11"
    surgery.rescue(str(run), named)
    assert _found(other)[0] == 11


@pytest.mark.parametrize("names", [None, PADDED])
def test_the_newest_step_is_named_as_latest_though_it_is_broken(tmp_path, names):
    run = _saved(tmp_path / "run", 7, 11, names=names)
    _lacking(run / ("11" if names is None else "ckpt_000011"))
    surgery.rescue(f"{run}@latest", str(tmp_path / "new"))
    assert _found(tmp_path / "new", names)[0] == 11


def test_latest_is_no_save_that_was_not_finished(tmp_path):
    run = _saved(tmp_path / "run", 7, 11)
    _killed(run / "11")
    assert surgery.rescue(f"{run}@latest").broken == str(run / "7")


@pytest.mark.parametrize("is_filled", [True, False])
def test_metrics_that_come_along_with_values_of_another_step_are_named(tmp_path, is_filled):
    run = _saved(tmp_path / "run", 7, 11)
    item = run / "11" / "state"
    for file in [*item.rglob("d/*")] if is_filled else []:
        if file.stat().st_size > 2000:
            file.unlink()
    done = surgery.rescue(f"{run}@11", str(tmp_path / "new"), fill_from=f"{run}@7")
    assert any(row.filled_from for row in done.leaves) == is_filled
    said = [note for note in map(str, done.notes) if "the metrics of '11' come along" in note]
    assert len(said) == is_filled
    assert (tmp_path / "new" / "11" / "metrics" / "metrics").exists()
