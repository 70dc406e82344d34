"""A command with `--resume` that has finished and is typed again: "already done", or what exactly is other."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.store.cutting import Runs
from tests.store.test_resume_lost import cut, lose

TREE = {
    "a": np.arange(4096, dtype=np.float32),
    "b": np.arange(512, dtype=np.float32),
}
DONE = {"code": 0, "said": "", "counted": 0}
FORMATS = {
    "plain": {},
    "prefix": {"step_prefix": "checkpoint"},
    "padded": {"step_format_fixed_length": 8},
}


@pytest.fixture(scope="module")
def run(google, amazon):
    with Runs("gcsfs", "s3fs") as runs:
        yield runs


def manager(place, form):
    options = ocp.CheckpointManagerOptions(**FORMATS[form])
    return ocp.CheckpointManager(place, options=options)


def save(place, step, form="plain", factor=1):
    with manager(place, form) as made:
        tree = {name: values * np.float32(factor) for name, values in TREE.items()}
        made.save(step, args=ocp.args.StandardSave(tree))


def restored(place, step, form="plain"):
    with manager(place, form) as made:
        return made.restore(step, args=ocp.args.StandardRestore(TREE))


def contents(place):
    """Every file below a folder, by what it holds."""
    return {file: file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}


def adding(place, *more, source=None):
    return (
        *("rescale", source or place, place, "a", "--by", "2", "--as-step", "10"),
        *("--quiet", "--resume", *more),
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_step_added_to_its_own_run_is_done_already_however_the_run_is_named(run, tmp_path, form):
    """The newest step is then the one that was made: another number was advised, with which it was edited twice."""
    root = tmp_path / "run"
    save(root, 2, form)
    save(root, 3, form)
    assert run(*adding(root))["code"] == 0
    before = contents(root)
    np.testing.assert_array_equal(restored(root, 10, form)["a"], TREE["a"] * 2)
    for source in (root, f"{root}@3", f"{root}@latest"):
        for dry in ((), ("--dry-run",)):
            ended = run(*adding(root, *dry, source=source))
            assert ended["code"] == 0, ended
    assert run(*adding(root)) == DONE
    assert contents(root) == before


def test_where_the_training_went_on_it_is_said_which_step_was_read_and_what_tells(run, tmp_path):
    root = tmp_path / "run"
    save(root, 3)
    assert run(*adding(root))["code"] == 0
    save(root, 12, factor=5)
    before = contents(root)
    ended = run(*adding(root))
    assert ended["code"] == 2, ended
    assert "made of step 3, and the newest beside it is 12 now" in ended["said"]
    (named,) = re.findall("`surgery (.*?)` says whether", ended["said"])
    assert run(*shlex.split(named)) == DONE
    assert contents(root) == before
    shutil.rmtree(root / "3")
    assert "made of '3', which is no longer there" in run(*adding(root))["said"]


def test_a_run_in_a_bucket_as_well(run, request, tmp_path):
    save(tmp_path / "run", 3)
    for name in ("bucket", "s3"):
        service = request.getfixturevalue(name)
        here = tmp_path / "run"
        for file in (file for file in here.rglob("*") if file.is_file()):
            service.put("bkt", f"run/{file.relative_to(here)}", file.read_bytes())
        for mark in ("run/3/commit_success.txt", "run/3/default/commit_success.txt"):
            service.put("bkt", mark, b"")
        root = f"{service.root}/run"
        first = run(*adding(root))
        assert first["code"] == 0, first
        assert run(*adding(root)) == DONE
        assert run(*adding(root, source=f"{root}@3")) == DONE
        if name == "bucket":  # Orbax restores nothing from an item without
            service.remove("run/10/default/commit_success.txt")
            ended = run(*adding(root))
            assert ended["code"] == 2
            assert "'default/commit_success.txt' is missing" in ended["said"]


@pytest.mark.parametrize("source", ["", "@3"])
def test_the_advice_for_a_step_that_is_taken_works(run, tmp_path, source):
    """`--force` was advised, and refused there."""
    root = tmp_path / "run"
    save(root, 3)
    words = adding(root, source=f"{root}{source}")
    assert run(*words)["code"] == 0
    before = contents(root)
    other = [word if word != "2" else "3" for word in words]
    for asked in (other, [*words, "--metrics", "drop"], [*words, "--force"]):
        ended = run(*asked)
        assert (ended["code"], contents(root)) == (2, before), ended
        assert "add `--force`" not in ended["said"]
    sealed = run(*words, "--seal")
    (command,) = re.findall("`surgery (seal [^`]*)` does that", sealed["said"])
    assert run(*shlex.split(command), "--quiet")["code"] == 0
    assert run(*words, "--seal") == DONE
    (removal,) = re.findall("remove that step first: `rm -r (.*)`", run(*other)["said"])
    shutil.rmtree(*shlex.split(removal))
    assert run(*other)["code"] == 0
    np.testing.assert_array_equal(restored(root, 10)["a"], TREE["a"] * 3)


def one_tree(place, *, ocdbt):
    with ocp.PyTreeCheckpointer(use_ocdbt=ocdbt) as checkpointer:
        checkpointer.save(place, TREE)


SOURCES = {
    "ocdbt": lambda place: one_tree(place, ocdbt=True),
    "leaves": lambda place: one_tree(place, ocdbt=False),
    "run": lambda place: save(place, 3),
}


def replace(file):
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(bytes(len(content)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("harm", [lose, cut, replace])
@pytest.mark.parametrize("kind", SOURCES)
def test_whichever_file_of_the_result_is_another_it_is_named_and_never_done(
    run, tmp_path, kind, harm
):
    """But for marks, by which nobody goes on a disk."""
    source, new, kept = tmp_path / "source", tmp_path / "new", tmp_path / "kept"
    SOURCES[kind](source)
    words = ("rescale", source, new, "a", "--by", "2", "--quiet", "--resume")
    assert run(*words)["code"] == 0
    new.rename(kept)
    for file in [file for file in sorted(kept.rglob("*")) if file.is_file()]:
        name = file.relative_to(kept)
        if file.name == "commit_success.txt" or (harm is not lose and not file.stat().st_size):
            continue
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(kept, new)
        assert run(*words) == DONE
        harm(new / name)
        there = contents(new)
        ended = run(*words)
        assert (ended["code"], contents(new)) == (2, there), (name, ended)
        said = ended["said"].splitlines()[1]
        is_of_store = "the store in" in said or "cannot be read" in said or "cannot be" in said
        is_named = file.name in said or is_of_store
        assert is_named or "no record of a run" in said or f"'{name.parts[-2]}" in said, said
        if "--force" in ended["said"]:
            assert run(*words, "--force")["code"] == 0, name


def test_what_comes_along_from_the_source_or_is_saved_anew_is_named(run, tmp_path):
    donor, source, new = tmp_path / "donor", tmp_path / "source", tmp_path / "new"
    save(source, 3)
    one_tree(donor, ocdbt=True)
    words = ("average", source, new, "a", "--with", donor, "--quiet", "--resume")
    assert run(*words)["code"] == 0
    readme = source / "3" / "README"
    readme.write_text("more")
    ended = run(*words)
    assert ended["code"] == 2
    assert "of what comes along with its values, '3/README' was not there" in ended["said"]
    assert "move '3/README' to another place" in ended["said"]
    readme.unlink()
    assert run(*words) == DONE
    shutil.rmtree(donor)
    one_tree(donor, ocdbt=True)
    ended = run(*words)
    assert ended["code"] == 2
    assert f"'{donor}' (" in ended["said"]
    assert "changed since: " in ended["said"]


def test_a_place_is_what_it_is_however_it_is_spelled(run, tmp_path, monkeypatch):
    """Of another spelling it was said that the destination exists."""
    (tmp_path / "c").mkdir()
    (tmp_path / "o").mkdir()
    one_tree(tmp_path / "c" / "source", ocdbt=True)
    one_tree(tmp_path / "c" / "donor", ocdbt=True)
    (tmp_path / "link").symlink_to("c")
    (tmp_path / "out").symlink_to("o")

    def average(source, new, donor):
        return run("average", source, new, "a", "--with", donor, "--quiet", "--resume")

    c, o = tmp_path / "c", tmp_path / "o"
    assert average(c / "source", o / "new", c / "donor")["code"] == 0
    before = contents(o)
    spelled = [c, f"{c}/../c", tmp_path / "link", f"{tmp_path}/./c", f"{tmp_path}//c"]
    for place in spelled:
        assert average(c / "source", o / "new", f"{place}/donor") == DONE, place
        assert average(f"{place}/source/", o / "new", f"{c}/donor/") == DONE, place
    for place in (f"{o}/../o", tmp_path / "out", f"{o}/"):
        assert average(c / "source", f"{place}/new", c / "donor") == DONE, place
    assert contents(o) == before
    shutil.copytree(c / "donor", c / "other")
    assert average(c / "source", o / "new", c / "other")["code"] == 2


@pytest.mark.parametrize("named", ["{root}", "{root}@latest", "{root}/"])
def test_of_a_run_without_a_number_the_command_that_goes_on_names_the_step_that_was_read(
    run, tmp_path, named
):
    """It named the run, of which another step is read by then: it was refused."""
    root, new = tmp_path / "run", tmp_path / "new"
    save(root, 3)
    source = named.format(root=root)
    words = ("rescale", source, new, "a", "--by", "2", "--quiet", "--resume")
    cut_short = run(*words, cut=["entry+", 3, "SIGINT"])
    assert cut_short["code"] == 130, cut_short
    (first,) = re.findall("`surgery (rescale [^`]*)` goes on", cut_short["said"])
    assert shlex.split(first)[1] == f"{root}@3"
    save(root, 4, factor=3)
    ended = run(*words)
    assert ended["code"] == 3, ended
    (second,) = re.findall("`surgery (rescale [^`]*)` goes on", ended["said"])
    assert second == first
    went_on = run(*shlex.split(second), "--json")
    assert went_on["code"] == 0, went_on
    assert json.loads(went_on["said"])["taken_up_bytes"] > 0
    assert Path(new / "3").is_dir()
