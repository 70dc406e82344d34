"""Destinations that are there by mistake: nothing of them is lost, or not without a word."""

import shutil

import pytest

from tests.cli.conftest import SAMPLES

EDIT = ("params/Dense_1/kernel", "--by", "0.5", "--force")


def test_force_replaces_a_checkpoint_but_nothing_else(surgery, checkpoint, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    for look in ([], ["--dry-run"]):
        refused = surgery("rescale", checkpoint, home, *EDIT, *look)
        assert refused.code == 2
        assert refused.err.startswith(f"error: `--force` would remove '{home}', which is no")
    file = home / "thesis.tex"
    assert surgery("rescale", checkpoint, file, *EDIT).code == 2
    for place in (home, file):  # what `--force` would refuse is not advised
        plain = surgery("rescale", checkpoint, place, *EDIT[:-1])
        assert plain.code == 2
        assert f"error: the destination '{place}' exists, and is not one checkpoint" in plain.err
        assert "--force" not in plain.err
    assert file.read_text() == "years of work"

    assert surgery("rescale", checkpoint, tmp_path / "new", *EDIT).code == 0
    assert surgery("rescale", checkpoint, tmp_path / "new", *EDIT).code == 0
    (tmp_path / "empty").mkdir()
    assert surgery("rescale", checkpoint, tmp_path / "empty", *EDIT).code == 0


@pytest.mark.parametrize("look", [["--dry-run"], ["-q"]])
def test_force_names_the_steps_that_go_with_a_run(surgery, checkpoint, tmp_path, look):
    run = shutil.copytree(checkpoint, tmp_path / "run")
    done = surgery("rescale", checkpoint, run, *EDIT, *look)

    assert done.code == 0
    assert "replaces '" in done.out + done.err
    assert "its 2 steps (250, 500) go" in (done.out + done.err).replace("\n", " ")
    assert "of a run, all of its steps go." in " ".join(surgery("help", "rescale").out.split())
    again = surgery("rescale", checkpoint, run, *EDIT, "-q")
    assert (" steps (" in again.err) == (look == ["--dry-run"])  # one step is what takes its place


@pytest.mark.parametrize(
    "words", [("apply", "SRC", "", "plan.yaml"), ("plan", "SRC", "plan.yaml", "--to", "")]
)
def test_an_empty_destination_is_not_the_working_directory(
    surgery, checkpoint, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text("edits: []\n")
    refused = surgery(*(checkpoint if word == "SRC" else word for word in words), "--force")

    assert refused.code == 2
    assert refused.err.startswith("error: the path of the destination is empty\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.yaml"]


WRITING = {
    "an edit": ("rescale", "{src}", "{dst}", "params", "--by", "2"),
    "a preview": ("rescale", "{src}", "{dst}", "params", "--by", "2", "--dry-run"),
    "apply": ("apply", "{src}", "{dst}", "{plan}"),
    "reshard": ("reshard", "{src}", "{dst}", "--chunk-bytes", "1MiB"),
    "compact": ("compact", "{src}", "{dst}"),
    "export": ("export", "{src}", "{dst}", "--to", "npz"),
    "rescue": ("rescue", "{src}/500", "{dst}"),
}


@pytest.mark.parametrize("step", ["500", "7", "latest"])
@pytest.mark.parametrize("command", WRITING)
def test_a_name_that_reads_as_a_step_of_a_run_is_no_destination(
    surgery, checkpoint, tmp_path, command, step
):
    """`run@7` beside `run` would be read in the place of step 7 by every command after it."""
    run = shutil.copytree(checkpoint, tmp_path / "run")
    plan = tmp_path / "plan.yaml"
    plan.write_text("edits:\n- {op: rescale, at: params, by: 2}\n")
    words = [
        word.format(src=checkpoint, dst=f"{run}@{step}", plan=plan) for word in WRITING[command]
    ]
    refused = surgery(*words)
    assert refused.code == 2, refused
    assert f"error: '{run}@{step}' names a step of the run '{run}'" in refused.err
    way = f"with `--as-step {'NEW' if step == 'latest' else step}`"
    if command == "rescue":  # it has none: the step itself, where there is none of that number
        way = f"name '{run}/7'; else name another" if step == "7" else "  name another place"
    assert way in refused.err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["plan.yaml", "run"]


def test_an_at_in_the_name_of_what_is_no_run_is_a_name_like_others(surgery, checkpoint, tmp_path):
    assert surgery("rescale", f"{checkpoint}@250", tmp_path / "new@7", *EDIT).code == 0
    assert surgery("rescale", tmp_path / "new@7", tmp_path / "new@8", *EDIT).code == 0


def test_what_is_advised_makes_that_step(surgery, checkpoint, tmp_path):
    done = surgery("rescale", checkpoint, tmp_path / "new", *EDIT, "--as-step", "7")
    assert done.code == 0, done.err
    assert surgery("inspect", f"{tmp_path / 'new'}@7").code == 0


def test_a_place_of_such_a_name_that_is_there_is_a_place_like_others(surgery, checkpoint, tmp_path):
    shutil.copytree(checkpoint / "250", tmp_path / "new@7")
    assert surgery("rescale", checkpoint, tmp_path / "new@7", *EDIT[:-1]).code == 2
    assert surgery("rescale", checkpoint, tmp_path / "new@7", *EDIT).code == 0
    assert surgery("rescale", tmp_path / "new@7", tmp_path / "other", *EDIT).code == 0


def test_a_run_as_its_own_destination_says_how_a_step_of_it_is_made(surgery, tmp_path):
    shutil.copytree(SAMPLES / "digits_manager", tmp_path / "run")
    run, edit = tmp_path / "run", ("params/Dense_1/kernel", "--by", "2", "--twins", "named")
    ended = surgery("rescale", run, run, *edit)
    assert ended.code == 2
    assert "is the source itself" in ended.err
    assert "name another place; or `--as-step N` makes a step of the run" in ended.err
    assert surgery("rescale", run, run, *edit, "--as-step", "600").code == 0
    flat = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "flat")
    ended = surgery("rescale", flat, flat, *edit)
    assert "  name another place\n" in ended.err
    assert "--as-step" not in ended.err


REPLACING = {
    "digits_manager": ((), "a run of one step"),
    "digits_manager/500": ((), "one step by itself"),
    "digits_standard": ((), "one tree, without steps"),
}


@pytest.mark.parametrize("source", REPLACING)
def test_what_takes_the_place_of_a_run_is_called_what_it_is(surgery, tmp_path, source):
    more, said = REPLACING[source]
    run = shutil.copytree(SAMPLES / "digits_manager", tmp_path / "run")
    done = surgery("compact", SAMPLES / source, run, "--force", "-q", *more)
    assert done.code == 0
    told = f"`--force` replaces '{run}' whole: its 2 steps (250, 500) go, and the result is {said}"
    assert told in done.err
    inside = {path.name for path in run.iterdir()}
    assert ("500" in inside) == (said == "a run of one step")
    assert ("_METADATA" in inside) == ("one tree" in said)
    assert ("default" in inside) == ("one step by" in said)
