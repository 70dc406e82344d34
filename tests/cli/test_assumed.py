"""What is taken for granted of a checkpoint before any edit: that an older step is meant, and what its tree was."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
import pytest

from tests.buckets.checkpoints import MARK, SAMPLES

ROOT = SAMPLES / "digits_manager"
OLDER = "step 500 of '{}' is taken: the newest, 600, is unfinished"
KERNEL = "params/Dense_1/kernel"


@pytest.fixture
def run(tmp_path):
    """A run whose newest step was killed while it was saved."""
    shutil.copytree(ROOT, tmp_path / "run")
    (tmp_path / "run" / "600.orbax-checkpoint-tmp-1795167049873362").mkdir()
    return tmp_path / "run"


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "policy.yaml").write_text("rules:\n  - {at: params, finite: true}\n")
    return tmp_path / "policy.yaml"


def commands(run, place, policy):
    """Every command that opens a root of steps, with the root as its source, or as what it compares with."""
    new, flat = place / "new", SAMPLES / "digits_standard"
    return {
        "apply": ("rescale", run, new, KERNEL, "--by", "2"),
        "preview": ("rescale", run, new, KERNEL, "--by", "2", "--dry-run"),
        "export": ("export", run, place / "new.npz", "params", "--to", "npz"),
        "compact": ("compact", run, new),
        "donor": ("replace", flat, new, KERNEL, "--with", run),
        "verify": ("verify", run),
        "verify like": ("verify", f"{run}@500", "--like", run),
        "seal": ("seal", run),
        "diff": ("diff", f"{run}@500", run),
        "check": ("check", run, policy),
        "assert": ("assert", run, "params", "--finite"),
        "inspect": ("inspect", run),
        "log": ("log", run),
        "derive": ("derive", f"{run}@500", run),
    }  # fmt: skip


EVERY = [*commands(Path(), Path(), Path())]


@pytest.mark.parametrize("name", EVERY)
def test_an_older_step_for_an_unfinished_newest_is_an_assumption(
    surgery, run, tmp_path, policy, name
):
    words = commands(run, tmp_path, policy)[name]
    said = OLDER.format(run)
    found = surgery(*words, "--json").document["assumptions"]
    assert [one["sentence"] for one in found if one["taken_for"] == "step 500"] == [said]
    assert [one["unless"] for one in found if one["taken_for"] == "step 500"] == [["step 600"]]
    quiet = surgery(*words, "-q", *forced(words))
    if quiet.out and name != "derive":  # it prints its document all the same, with what was skipped
        assert "unfinished and skipped: '600" in quiet.out.replace("\n", " ")
    else:
        assert quiet.err.count(f"assumed: {said}\n") == 1


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_assumed_of_a_step_that_was_named_or_is_the_newest(
    surgery, run, tmp_path, policy, name
):
    named = [
        f"{run}@500" if word == run else word for word in commands(run, tmp_path, policy)[name]
    ]
    assert "the newest, 600" not in surgery(*named, "--json").out
    for killed in run.glob("600*"):
        killed.rmdir()
    (run / "400.orbax-checkpoint-tmp-1795167049873362").mkdir()
    words = [*commands(run, tmp_path, policy)[name]]
    assert "the newest, " not in surgery(*words, "--json", *forced(words)).out


def forced(words):
    return (
        ("--force",)
        if any(word in words for word in ("rescale", "export", "compact", "replace"))
        else ()
    )


def test_the_newest_by_name_may_be_an_older_one_as_well(surgery, run, tmp_path):
    quiet = surgery("verify", f"{run}@latest", "-q")
    assert f"assumed: {OLDER.format(run)}\n" in quiet.err


def test_of_several_unfinished_steps_all_are_named_and_the_record_keeps_it(surgery, run, tmp_path):
    (run / "700.orbax-checkpoint-tmp-1795167049873362").mkdir()
    said = f"step 500 of '{run}' is taken: the newest, 700, is unfinished, as is 600"
    done = surgery("rescale", run, tmp_path / "new", KERNEL, "--by", "2", "-q")
    assert (done.code, done.out) == (0, "")
    assert f"assumed: {said}\n" in done.err
    record = json.loads((tmp_path / "new" / "500" / "surgery.json").read_text())
    assert said in [one["sentence"] for one in record["assumptions"]]


def test_a_step_without_its_mark_in_a_bucket_is_as_unfinished(surgery, service):
    for step in ("20", "30"):
        service.upload(SAMPLES / "digits_standard", f"{service.root}/run/{step}")
    service.remove(f"run/30/{MARK}")
    root, new = f"{service.root}/run", f"{service.root}/new"
    done = surgery("rescale", root, new, KERNEL, "--by", "2", "-q")
    if service.root.startswith("s3"):  # where no mark says anything, the newest is the newest
        assert (done.code, "the newest" in done.err) == (0, False)
        return
    said = f"step 20 of '{root}' is taken: the newest, 30, is unfinished"
    assert (done.code, done.out) == (0, "")
    assert done.err.count(f"assumed: {said}\n") == 1
    assert said in json.loads(service.content("new/20/surgery.json"))["assumptions"][0]["sentence"]
    assert f"assumed: {said}\n" in surgery("verify", root, "-q").err


def lists(place):
    """A checkpoint of a list and a None, and what it was saved from."""
    params = {"layers": [jnp.arange(3.0), jnp.ones(2)]}
    tree = {"params": params, "opt_state": optax.sgd(0.1, 0.9).init(params), "none": None}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place, tree)
    return tree


SIDECARS = ("_CHECKPOINT_METADATA", "_sharding", "array_metadatas")


@pytest.mark.parametrize("left", SIDECARS)
@pytest.mark.parametrize(
    "command", [("compact",), ("rescale", "params/layers/0", "--by", "2"), ("export",)]
)
def test_a_tree_of_names_beside_newer_files_is_an_assumption(surgery, tmp_path, left, command):
    """Whichever of them stands; Orbax is the judge of what is said to follow."""
    tree = lists(tmp_path / "run")
    for name in {"_METADATA", *SIDECARS} - {left}:
        path = tmp_path / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    name, *rest = command
    new = tmp_path / ("new.npz" if name == "export" else "new")
    words = (name, tmp_path / "run", new, *rest, *(("--to", "npz") if name == "export" else ()))
    preview = surgery(*words, "--dry-run").out
    assert "assumed: " in preview
    done = surgery(*words, "-q")
    assert (done.code, done.out) == (0, "")
    (line,) = [one for one in done.err.splitlines() if one.startswith("assumed: ")]
    for said in (
        f"'{tmp_path / 'run'}' is taken for a tree of dicts, as the names of its arrays tell",
        "lists or tuples (they come back as dicts with number keys)",
        "Orbax may refuse the target that it was saved from, and without a target it restores none",
        "copy it again from where the checkpoint is whole",
    ):
        assert said in line
    assert "note: there is no `_METADATA`" not in done.err
    if name == "export":
        return
    record = json.loads((new / "surgery.json").read_text())
    assert line.removeprefix("assumed: ") in [one["sentence"] for one in record["assumptions"]]
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    for place in (tmp_path / "run", new):
        with ocp.PyTreeCheckpointer() as checkpointer:
            with pytest.raises(FileNotFoundError):
                checkpointer.restore(place)
            with pytest.raises(ValueError, match=r"different types|Expected tuple"):
                checkpointer.restore(place, ocp.args.PyTreeRestore(target))
    leaves = [leaf["path"] for leaf in surgery("inspect", new, "--json").document["leaves"]]
    assert "params/layers/0" in leaves
    assert not any("none" in leaf for leaf in leaves)


@pytest.mark.parametrize("of_donor", [True, False])
def test_so_is_one_of_which_values_are_taken(surgery, tmp_path, of_donor):
    for name in ("run", "donor"):
        lists(tmp_path / name)
    (tmp_path / ("donor" if of_donor else "run") / "_METADATA").unlink()
    at = ("params/layers/0", "--with", tmp_path / "donor", "--optimizer", "keep")
    done = surgery("replace", tmp_path / "run", tmp_path / "new", *at, "-q")
    assert done.code == 0, done.err
    said = [one for one in done.err.splitlines() if "is taken for a tree of dicts" in one]
    assert [str(tmp_path / "donor") in one for one in said] == [of_donor]


def test_what_prints_a_plan_alone_says_it_beside_that(surgery, run, tmp_path):
    new = tmp_path / "new"
    assert surgery("rescale", f"{run}@500", new, KERNEL, "--by", "2", "-q").code == 0
    (new / "600.orbax-checkpoint-tmp-1795167049873362").mkdir()
    for words in (("plan", new, "--inverse"), ("log", new, "--plan", "1")):
        ended = surgery(*words)
        assert ended.code == 0
        assert ended.err == f"assumed: {OLDER.format(new)}\n"
        assert "assumed" not in ended.out
    assert surgery("plan", f"{new}@500", "--inverse").err == ""


def test_a_model_is_looked_at_on_an_older_step_of_either_side_by_assumption(surgery, run):
    model = ("--model", f"{SAMPLES / 'digits.py'}:CNN", "--input", "float32[2,8,8,1]")
    flat = SAMPLES / "digits_standard"
    for words in ((run,), (flat, "--against", run), (run, "--against", flat)):
        found = surgery("probe", *words, *model, "--json").document["assumptions"]
        assert [one["sentence"] for one in found] == [OLDER.format(run)]
    assert surgery("probe", f"{run}@500", *model, "--json").document["assumptions"] == []
