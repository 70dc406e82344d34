"""`--as-step N` into the run that is read: it appears whole, a manager restores it, nothing else is touched."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from etils import epath

from surgery_cli import surgery
from surgery_cli.errors import DestinationError, ValueRefusal
from surgery_cli.planning import plan_from_document
from tests.buckets.google_server import GoogleServer

TREE = {
    "step": np.array(5, np.int32),
    "params": {"w": np.arange(64, dtype=np.float32), "b": np.ones(8, np.float32)},
}
DOUBLED = plan_from_document({"edits": [{"op": "rescale", "at": "params/w", "by": 2}]})
LAID_OUT = plan_from_document({"edits": [], "reshard": {"chunk_bytes": 64}})
COUNTED = plan_from_document({"edits": [{"op": "set", "at": "step", "to": 7}]})
FORMATS = {
    "plain": {},
    "prefix": {"step_prefix": "checkpoint"},
    "padded": {"step_format_fixed_length": 8},
}


def names(**form):
    return ocp.CheckpointManagerOptions(best_fn=lambda metrics: -metrics["loss"], **form)


def saved(path, steps=(3, 5), **form):
    with ocp.CheckpointManager(path, options=names(**form)) as manager:
        for step in steps:
            manager.save(step, args=ocp.args.StandardSave(TREE), metrics={"loss": step / 2})
        manager.wait_until_finished()
    return path


def state(path, but=""):
    """Every file and folder with what a change of it would change, without what lies in ``but``."""
    return {
        name: (found.stat().st_ino, found.is_file() and (found.read_bytes(), found.stat().st_mtime))
        for found in path.rglob("*")
        if not (name := str(found.relative_to(path))).startswith(f"{but}/") and name != but
    }


def restored(path, step, **form):
    with ocp.CheckpointManager(path, options=names(**form)) as manager:
        tree = manager.restore(step, args=ocp.args.StandardRestore(TREE))
        return manager.all_steps(), tree, manager.metrics(step)


def apply(source, destination, plan=DOUBLED, **options):
    return surgery.apply(str(source), str(destination), plan, options=surgery.Options(**options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("said", ["root", "root@step", "step"])
def test_a_manager_restores_the_new_step_and_the_others_are_as_they_were(tmp_path, form, said):
    run = saved(tmp_path / "run", **FORMATS[form])
    before, name = state(run), {"plain": "7", "prefix": "checkpoint_7", "padded": "00000007"}[form]
    source = {
        "root": run,
        "root@step": f"{run}@3",
        "step": run / name.replace("7", "3"),
    }[said]
    report = apply(source, run, as_step=7)
    assert report.destination == str(run / name)
    assert state(run, but=name) == before
    steps, tree, metrics = restored(run, 7, **FORMATS[form])
    assert list(steps) == [3, 5, 7]
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"] * 2)
    np.testing.assert_array_equal(tree["params"]["b"], TREE["params"]["b"])
    assert metrics is None  # they were measured on other values


@pytest.mark.sampled(2)
@pytest.mark.parametrize("named", ["link link", "link run", "run link", "step link", "chain sub"])
def test_a_run_may_be_named_by_links(tmp_path, named):
    run = saved(tmp_path / "run")
    (tmp_path / "link").symlink_to("run")
    (tmp_path / "chain").symlink_to("link")
    (tmp_path / "sub").symlink_to(tmp_path)
    places = {"step": tmp_path / "chain" / "3", "sub": tmp_path / "sub" / "chain"}
    source, destination = (places.get(name, tmp_path / name) for name in named.split())
    before = state(run)
    report = apply(source, destination, as_step=7)
    assert report.destination == str(destination / "7")
    assert state(run, but="7") == before
    steps, tree, _ = restored(run, 7)
    assert list(steps) == [3, 5, 7]
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"] * 2)
    with pytest.raises(DestinationError, match="is taken"):
        apply(source, destination, as_step=5)
    with pytest.raises(DestinationError, match="the run itself"):
        apply(source, destination, as_step=8, force=True)
    other = saved(tmp_path / "other")
    (tmp_path / "far").symlink_to(other)
    with pytest.raises(DestinationError, match="does not belong"):
        apply(source, tmp_path / "far", as_step=8)


def test_a_destination_that_is_a_circle_of_links_exists(tmp_path):
    run = saved(tmp_path / "run")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(DestinationError, match="exists"):
        apply(run, tmp_path / "circle", as_step=7)


def best(path, **form):
    with ocp.CheckpointManager(path, options=names(**form)) as manager:
        return manager.best_step()


@pytest.mark.parametrize(
    ("plan", "metrics", "kept"),
    [
        (DOUBLED, "auto", False),
        (DOUBLED, "drop", False),
        (DOUBLED, "keep", True),
        (COUNTED, "auto", True),
        (COUNTED, "drop", False),
        (LAID_OUT, "auto", True),
        (LAID_OUT, "drop", False),
    ],
    ids=["values", "dropped", "kept", "the count", "the count dropped", "layout", "layout dropped"],
)
def test_a_manager_does_not_judge_new_values_by_the_old_ones_metrics(tmp_path, plan, metrics, kept):
    run = saved(tmp_path / "run")
    assert best(run) == 3
    report = apply(f"{run}@3", run, plan, as_step=7, metrics=metrics)
    said = [str(note) for note in report.consequences if "metrics" in note]
    assert len(said) == (plan is DOUBLED or metrics == "drop")
    assert all("come along" in note if kept else "are left out" in note for note in said)
    assert all(("measured on other values" in note) is (plan is DOUBLED) for note in said)
    assert (restored(run, 7)[2] == {"loss": 1.5}) is kept
    assert best(run) == (7 if kept else 3)
    with ocp.CheckpointManager(run, options=names(max_to_keep=1)) as manager:
        manager.save(8, args=ocp.args.StandardSave(TREE), metrics={"loss": 9})
        manager.wait_until_finished()
        assert list(manager.all_steps()) == ([7] if kept else [3, 7])


W, B = "params/w", "params/b"
KEEP_VALUES = {
    "renamed": {"op": "rename", "at": W, "to": "params/v"},
    "copied": {"op": "copy", "at": W, "to": "params/v"},
    "sliced to what it is": {"op": "slice", "at": W, "slices": "0:99"},
    "without optimizer": {"op": "delete", "at": "opt_state"},
    "without the count": {"op": "delete", "at": "step"},
    "params alone": {"op": "keep", "at": "params"},
    "layers by another name": {
        "op": "rename",
        "at": "params/layer_*",
        "to": r"params/l_\1",
    },
}
OTHER_VALUES = {
    "exchanged": {
        "op": "rename",
        "moves": {"params/layer_0": "params/layer_1", "params/layer_1": "params/layer_0"},
    },
    "in another order": {"op": "permute", "at": B, "axis": 0, "index": [1, 0, 2, 3, 4, 5, 6, 7]},
    "without a leaf": {"op": "delete", "at": B},
    "with another dtype": {"op": "cast", "at": W, "to": "bfloat16"},
    "with a cut leaf": {"op": "slice", "at": W, "slices": "0:9"},
    "with new optimizer": {"op": "reset-optimizer"},
}
LAYERED = {
    **TREE,
    "params": {
        **TREE["params"],
        "b": np.arange(8, dtype=np.float32),
        "layer_0": {"w": np.zeros(3, np.float32)},
        "layer_1": {"w": np.ones(3, np.float32)},
    },
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    state = optax.adam(0.1).init(LAYERED["params"])
    with ocp.CheckpointManager(path, options=names()) as manager:
        tree = {**LAYERED, "opt_state": state}
        manager.save(3, args=ocp.args.StandardSave(tree), metrics={"loss": 1.5})
        manager.wait_until_finished()
    return path


def about_metrics(report):
    return [str(note) for note in report.notes if "metrics" in note]


@pytest.mark.parametrize("edit", KEEP_VALUES.values(), ids=KEEP_VALUES)
def test_metrics_of_an_edit_that_changes_no_value_come_along_without_a_word(
    trained, tmp_path, edit
):
    report = apply(trained, tmp_path / "new", plan_from_document({"edits": [edit]}))
    assert about_metrics(report) == []
    assert (tmp_path / "new/3/metrics").is_dir()


@pytest.mark.parametrize("edit", OTHER_VALUES.values(), ids=OTHER_VALUES)
def test_metrics_were_measured_on_other_values_until_the_edit_is_undone(trained, tmp_path, edit):
    report = apply(trained, tmp_path / "new", plan_from_document({"edits": [edit]}))
    (said,) = about_metrics(report)
    assert "come along, which were measured on other values" in said

    undo = plan_from_document(surgery.inverse(str(tmp_path / "new")).plan)
    assert about_metrics(apply(tmp_path / "new", tmp_path / "back", undo)) == []
    assert surgery.diff(str(trained), str(tmp_path / "back")).equal


def test_metrics_of_an_undo_that_leaves_an_earlier_edit_were_measured_on_other_values(
    trained, tmp_path
):
    apply(trained, tmp_path / "first")
    apply(tmp_path / "first", tmp_path / "second")
    undo = plan_from_document(surgery.inverse(str(tmp_path / "second")).plan)
    (said,) = about_metrics(apply(tmp_path / "second", tmp_path / "back", undo))
    assert "measured on other values" in said


def test_metrics_go_into_a_run_of_their_own_unless_told(tmp_path):
    run = saved(tmp_path / "run")
    report = apply(f"{run}@3", tmp_path / "kept", DOUBLED)
    assert any("come along, which were measured on other" in note for note in report.notes)
    assert restored(tmp_path / "kept", 3)[2] == {"loss": 1.5}
    report = apply(f"{run}@3", tmp_path / "dropped", DOUBLED, metrics="drop")
    assert any("metrics are left out" in note for note in report.consequences)
    assert restored(tmp_path / "dropped", 3)[2] is None
    metadata = json.loads((tmp_path / "dropped/3/_CHECKPOINT_METADATA").read_text())
    assert "metrics" not in metadata["item_handlers"]


def test_the_number_inside_is_not_said_to_be_old_where_the_plan_sets_it(tmp_path):
    run = saved(tmp_path / "run")
    options = surgery.Options(as_step=7)
    preview = surgery.plan(f"{run}@3", COUNTED, destination=str(run), options=options)
    assert "inside" not in " ".join(preview.consequences)


def test_the_preview_says_what_a_manager_makes_of_it(tmp_path):
    run = saved(tmp_path / "run")
    told = {}
    for number in (4, 7):
        options = surgery.Options(as_step=number)
        preview = surgery.plan(f"{run}@3", DOUBLED, destination=str(run), options=options)
        told[number] = " ".join(preview.consequences)
        assert f"`surgery set {run}@{number} NEW step --to {number}`" in told[number]
        assert "does not see this one until it is started again" in told[number]
    assert "the newest step stays 5" in told[4]
    assert "it will be the newest step" in told[7]
    # as the manager has it, and as the line about the number inside says
    apply(f"{run}@3", run, as_step=7)
    assert restored(run, 7)[0][-1] == 7
    assert restored(run, 7)[1]["step"] == 5
    mend = plan_from_document({"edits": [{"op": "set", "at": "step", "to": 7}]})
    apply(f"{run}@7", tmp_path / "new", mend)
    assert restored(tmp_path / "new", 7)[1]["step"] == 7


@pytest.mark.parametrize("taken", ["5", "05", "7.orbax-checkpoint-tmp-12"])
def test_a_number_that_the_run_has_is_refused_in_every_spelling(tmp_path, taken):
    run = saved(tmp_path / "run")
    if taken != "5":
        shutil.copytree(run / "3", run / taken)
    before = state(run)
    number = 7 if "tmp" in taken else 5
    with pytest.raises(DestinationError, match=f"step {number} of '{run}' is taken"):
        apply(f"{run}@3", run, as_step=number)
    with pytest.raises(DestinationError):
        apply(run / "3", run / str(number))
    assert state(run) == before


def test_force_and_another_format_are_refused(tmp_path):
    run = saved(tmp_path / "run")
    before = state(run)
    with pytest.raises(DestinationError, match="`--force` would replace what is in the run"):
        apply(run, run, as_step=7, force=True)
    with pytest.raises(DestinationError, match="is not how this run names its steps") as refused:
        apply(run / "3", run / "007")
    assert refused.value.problems[0].fix == f"name it '{run / '7'}'"
    assert state(run) == before


@pytest.mark.parametrize("name", ["expB_1", "expC_7", "expB-1"])
def test_names_that_end_in_a_number_are_no_steps_of_one_run(tmp_path, name):
    """A folder of experiments, each a checkpoint: only `N`, `step_N`, `ckpt_N`, `checkpoint_N` say that they are."""
    run = saved(tmp_path / "elsewhere" / "run")
    for made in ("expA_1", "expB_0"):
        shutil.copytree(run / "3" / "default", tmp_path / made)
    report = apply(tmp_path / "expB_0", tmp_path / name)
    assert not any(
        "a new step of the run" in note for note in report.consequences if name != "expB_1"
    )
    with pytest.raises(DestinationError, match="is not how this run names its steps"):
        apply(tmp_path / "expA_1", tmp_path / "expA_01")


def test_what_fails_on_values_leaves_the_run_as_it_was(tmp_path):
    tree = {"params": {"w": np.zeros(8, np.float32)}}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.StandardSave(tree))
        manager.wait_until_finished()
    before = state(tmp_path / "run")
    plan = plan_from_document({"edits": [{"op": "normalize", "at": "params/w"}]})
    with pytest.raises(ValueRefusal):
        apply(tmp_path / "run", tmp_path / "run", plan, as_step=2)
    assert state(tmp_path / "run") == before


def test_another_root_gets_the_one_step_under_its_new_number(tmp_path):
    run = saved(tmp_path / "run")
    apply(run, tmp_path / "new", as_step=7)
    assert [place.name for place in (tmp_path / "new").iterdir()] == ["7"]


def test_a_run_in_a_bucket_gets_a_step_that_orbax_restores(bucket: GoogleServer):
    run = epath.Path("gs://bkt/run")
    saved(run)
    before = {key: stored.data for key, stored in bucket.buckets["bkt"].items()}
    apply(run, run, as_step=7)
    after = {key: stored.data for key, stored in bucket.buckets["bkt"].items()}
    assert {key: data for key, data in after.items() if not key.startswith("run/7/")} == before
    steps, tree, _ = restored(run, 7)
    assert list(steps) == [3, 5, 7]
    np.testing.assert_array_equal(jnp.asarray(tree["params"]["w"]), TREE["params"]["w"] * 2)


MEANS = {
    "over steps": {"op": "swa", "at": "params", "steps": "3..5"},
    "over steps of a decay": {"op": "ema", "at": "params", "steps": "3..5", "decay": 0.5},
    "of steps that are named": {"op": "average", "at": "params", "with": "{run}@3"},
    "of steps of the run": {"op": "average", "at": "params", "with": "{run}", "steps": "3..4"},
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("said", ["root", "root@step", "step"])
@pytest.mark.parametrize("mean", MEANS)
def test_a_mean_over_steps_becomes_a_new_step_beside_them(tmp_path, mean, said):
    run = saved(tmp_path / "run", steps=(3, 4, 5))
    edit = {**MEANS[mean], "with": MEANS[mean].get("with", "").format(run=run)}
    edit = {key: value for key, value in edit.items() if value}
    plan = plan_from_document({"edits": [edit]})
    before = state(run)
    source = {"root": run, "root@step": f"{run}@5", "step": run / "5"}[said]
    elsewhere = apply(source, tmp_path / "elsewhere", plan)
    report = apply(source, run, plan, as_step=7)
    assert report.digests == elsewhere.digests
    assert state(run, but="7") == before
    steps, tree, _ = restored(run, 7)
    assert list(steps) == [3, 4, 5, 7]
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"])


@pytest.mark.parametrize("force", [False, True])
def test_another_run_is_never_replaced_by_one_step(tmp_path, force):
    run, other = saved(tmp_path / "run"), saved(tmp_path / "other")
    before = state(other)
    with pytest.raises(DestinationError, match="does not belong") as refused:
        apply(run, other, as_step=7, force=force)
    assert "add `--force`" not in str(refused.value)
    assert state(other) == before


def test_a_run_of_one_step_is_replaced_or_gone_on_from_as_an_earlier_result(tmp_path):
    run, other = saved(tmp_path / "run"), tmp_path / "other"
    apply(run, other, as_step=7)
    before = state(other)
    with pytest.raises(DestinationError, match="does not belong") as refused:
        apply(run, other, as_step=8)
    assert "add `--force`" not in str(refused.value)
    assert state(other) == before
    assert apply(run, other, as_step=7, resume=True).is_repeated
    apply(run, other, as_step=8, force=True)
    assert [path.name for path in other.iterdir() if path.is_dir()] == ["8"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("said", ["root", "step"])
def test_a_repeated_run_into_the_same_run_is_done_already(tmp_path, form, said):
    """It said that the step is taken: by what this very command had made."""
    run = saved(tmp_path / "run", **FORMATS[form])
    source = {"root": f"{run}@5", "step": max(p for p in run.iterdir() if p.name.endswith("5"))}[
        said
    ]
    apply(source, run, as_step=7, resume=True)
    before = state(run)
    assert apply(source, run, as_step=7, resume=True).is_repeated
    previewed = surgery.plan(
        str(source), DOUBLED, destination=str(run), options=surgery.Options(as_step=7, resume=True)
    )
    assert previewed.is_repeated
    for plan, step, resume in ((COUNTED, 7, True), (DOUBLED, 3, True), (DOUBLED, 7, False)):
        with pytest.raises(DestinationError, match=rf"step {step} of .* is taken"):
            apply(source, run, plan, as_step=step, resume=resume)
    assert state(run) == before
