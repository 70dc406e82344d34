"""Nobody is told to remove a place in which more stands than the one thing that is in the way."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from surgery_cli.console.printable import shown_path
from surgery_cli.errors import SurgeryError
from surgery_cli.store.locate.location import locate
from surgery_cli.store.locate.one_checkpoint import is_one_checkpoint
from tests.cli.conftest import SAMPLES

EDIT = ("params/Dense_1/kernel", "--by", "0.5", "--twins", "named")
SOURCES = Path(__file__).resolve().parents[2] / "surgery_cli"
REMOVAL = re.compile(r"`((?:rm|gcloud storage rm|aws s3 rm)\b[^`]*)`")


def _several(place):
    for name in ("one", "two"):
        shutil.copytree(SAMPLES / "digits_standard", place / name)


def _of_formats(place):
    for name in ("1", "step_2"):
        shutil.copytree(SAMPLES / "digits_standard", place / name)


def _unfinished(place):
    shutil.copytree(SAMPLES / "digits_standard", place / "1.orbax-checkpoint-tmp")


def _work(place):
    (place / "thesis").mkdir(parents=True)
    (place / "thesis" / "thesis.tex").write_text("years of work")


def _files(place):
    place.mkdir(exist_ok=True)
    for name in ("a.npz", "b.npz"):
        np.savez(place / name, w=np.ones(2))


def _called_d(place):
    for name in ("d", "e"):
        shutil.copytree(SAMPLES / "digits_standard", place / name)


def _notes_in_d(place):
    for name in ("a", "d"):
        (place / name).mkdir(parents=True)
        (place / name / "notes.txt").write_text("years of work")


def _with(*names):
    def fill(place):
        place.mkdir(exist_ok=True)
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("years of work")

    return fill


def _below_metadata(place):
    _several(place)
    shutil.copy(SAMPLES / "digits_standard" / "_CHECKPOINT_METADATA", place)


def _beside(place, *names):
    """A checkpoint that cannot be read, and something beside it."""
    shutil.copytree(SAMPLES / "digits_standard", place, dirs_exist_ok=True)
    (place / "_METADATA").write_text("{")
    _with(*names)(place)


def _step_beside(place):
    """A step of which the one item cannot be read, and notes beside that."""
    shutil.copytree(SAMPLES / "digits_v1", place, dirs_exist_ok=True)
    (place / "state" / "_METADATA").write_text("{")
    _with("notes/a.txt")(place)


def _called_as_a_database(place):
    shutil.copytree(SAMPLES / "digits_standard", place / "ocdbt.process_0")


HOLDING = {
    "a checkpoint called d beside another": _called_d,
    "notes in a folder called d": _notes_in_d,
    "notes in a folder of databases": _with("d/0123456789abcdef0123456789abcdef", "d/notes.txt"),
    "code": _with("train.py", "data.csv"),
    "weights of others": _with("w.h5", "w.gguf", "w.tfrecord"),
    "shards": _with("model-00001-of-00002.safetensors", "config.json"),
    "a file called checkpoint": _with("checkpoint", "model.index"),
    "checkpoints below metadata of a step": _below_metadata,
    "a checkpoint that cannot be read, and notes": lambda place: _beside(place, "notes.txt"),
    "the same, and notes in a folder": lambda place: _beside(place, "notes/a.txt"),
    "the same, and notes among its data": lambda place: _beside(place, "d/notes.txt"),
    "the same, and another checkpoint": lambda place: shutil.copytree(
        SAMPLES / "digits_standard", (_beside(place), place / "better")[1]
    ),
    "a step that cannot be read, and notes": _step_beside,
    "a checkpoint called like a database": _called_as_a_database,
    "a run": lambda place: shutil.copytree(SAMPLES / "letters_run", place, dirs_exist_ok=True),
    "several checkpoints": _several,
    "steps in two formats": _of_formats,
    "a run without a finished step": _unfinished,
    "folders of work": _work,
    "files that are checkpoints": _files,
}


SOURCE = SAMPLES / "digits_standard"
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
WHOLE = [
    SAMPLES / "digits_standard",
    SAMPLES / "digits_v1",
    SAMPLES / "digits_manager" / "500",
    FIXTURES / "orbax-0.12.8" / "sharded4_noocdbt",
    FIXTURES / "orbax-0.12.8" / "sharded4_zarr3",
    FIXTURES / "orbax-0.2.7" / "odd_lst",
    FIXTURES / "orbax-0.5.10" / "cm_composite" / "100",
]
COMMANDS = {
    "rescale": ("rescale", SOURCE, "PLACE", *EDIT),
    "force": ("rescale", SOURCE, "PLACE", *EDIT, "--force"),
    "dry run": ("cast", SOURCE, "PLACE", "params/**", "--to", "bfloat16", "--dry-run"),
    "average": ("average", SOURCE, "PLACE", "params/**", "--with", SAMPLES / "digits_v1"),
    "apply": ("apply", SOURCE, "PLAN", "PLACE"),
    "plan": ("plan", SOURCE, "PLAN", "--to", "PLACE", "--force"),
    "export": ("export", SOURCE, "PLACE", "--to", "safetensors"),
    "reshard": ("reshard", SOURCE, "PLACE", "--chunk-bytes", "1MiB"),
    "compact": ("compact", SOURCE, "PLACE"),
    "rescue": ("rescue", SOURCE, "PLACE"),
}


def _is_found(place):
    """Whether it is found as one checkpoint, be it one that is damaged: `--force` replaces that."""
    with suppress(SurgeryError):
        return bool(locate(str(place)).items)
    return False


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("holding", HOLDING)
def test_no_command_advises_that_what_holds_more_goes(surgery, tmp_path, holding, command):
    place, plan = tmp_path / "place", tmp_path / "plan.yaml"
    place.mkdir()
    HOLDING[holding](place)
    plan.write_text("edits:\n- {op: rescale, at: params/Dense_1/kernel, by: 0.5, twins: named}\n")
    if "--force" in COMMANDS[command] and _is_found(place):
        return
    before = sorted(place.rglob("*"))
    given = {"PLACE": place, "PLAN": plan}
    refused = surgery(*(given.get(word, word) for word in COMMANDS[command]))
    assert refused.code == 2, (refused.out, refused.err)
    assert str(place) in refused.err
    assert not REMOVAL.search(refused.err), refused.err
    assert "remove it" not in refused.err
    if holding != "notes in a folder of databases":
        assert "without its 'manifest.ocdbt'" not in refused.err
    assert before == sorted(place.rglob("*"))


@pytest.mark.parametrize("named", [".", "..", "./"])
@pytest.mark.parametrize("holding", HOLDING)
@pytest.mark.parametrize("command", ["rescale", "force", "rescue"])
def test_nor_where_it_is_named_from_inside(surgery, tmp_path, monkeypatch, command, holding, named):
    place = tmp_path / "place"
    place.mkdir()
    HOLDING[holding](place)
    before = sorted(place.rglob("*"))
    inside = place / "inside" if named == ".." else place
    inside.mkdir(exist_ok=True)
    monkeypatch.chdir(inside)
    refused = surgery(*(named if word == "PLACE" else word for word in COMMANDS[command]))
    assert refused.code == 2, refused.out
    assert not REMOVAL.search(refused.err), refused.err
    assert "remove it" not in refused.err
    assert set(before) <= set(place.rglob("*"))


INSIDE = [".", "./", "..", "../place", "ABSOLUTE", "inside/.."]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("named", INSIDE)
@pytest.mark.parametrize("holding", ["nothing", "a checkpoint", "a run"])
def test_nothing_is_replaced_in_which_the_command_runs(
    surgery, tmp_path, monkeypatch, holding, named, force
):
    """Nor is `--force` advised, which would leave a shell in a directory that is gone."""
    place = tmp_path / "place"
    held = {"a checkpoint": SOURCE, "a run": SAMPLES / "letters_run"}
    shutil.copytree(held[holding], place) if holding in held else place.mkdir()
    inside = place / "inside"
    if named in ("..", "inside/.."):
        inside.mkdir()
    before = sorted(place.rglob("*"))
    monkeypatch.chdir(inside if named == ".." else place)
    given = str(place) if named == "ABSOLUTE" else named
    refused = surgery("rescale", SAMPLES / "digits_v1", given, *EDIT, *force)
    assert refused.code == 2, refused.out
    assert "add `--force`" not in refused.err
    assert not REMOVAL.search(refused.err)
    assert sorted(place.rglob("*")) == before
    if holding != "nothing" or not inside.exists():
        assert "and this command runs in it\n" in refused.err
        assert refused.err.endswith("  name another place, or `cd` out of it first\n")


def test_not_even_one_damaged_checkpoint_in_which_a_shell_stands(surgery, tmp_path, monkeypatch):
    broken = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "broken")
    (broken / "manifest.ocdbt").unlink()
    shutil.rmtree(broken / "d", ignore_errors=True)
    (broken / "_METADATA").write_text("{")
    monkeypatch.chdir(broken)
    refused = surgery("rescale", SAMPLES / "digits_manager", ".", *EDIT)
    assert refused.code == 2
    assert not REMOVAL.search(refused.err)


def _damaged(place, source=SOURCE, lost=("_METADATA",)):
    shutil.copytree(source, place)
    for name in lost:
        for file in place.rglob(name):
            file.unlink()


ONE_THING = {
    "nothing": lambda place: place.mkdir(),
    "a damaged tree": lambda place: _damaged(place, lost=("manifest.ocdbt",)),
    "data alone": lambda place: _damaged(place, lost=("manifest.ocdbt", "_*", "process_0")),
    "a damaged step": lambda place: _damaged(place, SAMPLES / "digits_manager" / "500"),
    "one of an old Orbax": lambda place: _damaged(
        place, FIXTURES / "orbax-0.5.10" / "sharded4_noocdbt", ("checkpoint", "_*")
    ),
    "a link": lambda place: place.symlink_to(SAMPLES),
}
"""What is one thing, or was, and who named it as a destination may be told to remove it."""


@pytest.mark.parametrize("thing", ONE_THING)
def test_one_thing_in_the_way_is_removed_as_advised(surgery, tmp_path, thing):
    place = tmp_path / "place"
    ONE_THING[thing](place)
    words = ("rescue", SOURCE, place)
    refused = surgery(*words)
    assert refused.code == 2
    (advised,) = REMOVAL.findall(refused.err)
    assert shlex.split(advised)[-1] == str(place)
    assert os.system(advised) == 0
    assert surgery(*words).code == 0


@pytest.mark.parametrize("checkpoint", WHOLE, ids=str)
def test_every_whole_checkpoint_is_one_thing_and_with_a_file_of_others_none(tmp_path, checkpoint):
    place = shutil.copytree(checkpoint, tmp_path / checkpoint.name)
    assert is_one_checkpoint(place)
    for folder in [place, *(one for one in place.rglob("*") if one.is_dir())]:
        file = folder / "thesis.tex"
        file.write_text("years of work")
        assert not is_one_checkpoint(place) or folder.name == "metrics", file
        file.unlink()


OF_ITS_OWN: dict[str, str] = {
    "surgery_cli/examination/leftovers.py": "what `--force` has set aside, under its own name",
    "surgery_cli/store/locate/refusals.py": "the same",
    "surgery_cli/surgery/same_run.py": "a step of a run, by its number",
    "surgery_cli/surgery/repeated_step.py": "the same",
    "surgery_cli/surgery/clean.py": "a destination that a run has begun to write, after a look",
    "surgery_cli/surgery/record_beside.py": "one file, a record",
    "surgery_cli/surgery/rescue_target.py": "the same",
    "surgery_cli/proof/file_marks.py": "the same",
    "surgery_cli/store/write/half_replaced.py": "a destination that is of two checkpoints, and what was built for it",
    "surgery_cli/store/write/finishing.py": "what a run has built, its list and its lock",
    "surgery_cli/store/write/destination.py": "a destination that a run was writing in a bucket",
    "surgery_cli/surgery/removal_advice.py": "asked about above",
}
"""Where the advice is made, and of which place it is: whoever adds one says why that may go as a whole."""


def test_every_advice_to_remove_is_of_a_place_that_may_go():
    found = set()
    for file in SOURCES.rglob("*.py"):
        text = file.read_text("utf-8")
        if re.search(r"\bremoval(?:_of)?\(", text) or re.search(
            r"`(?:rm|gcloud storage rm|aws s3 rm) ", text
        ):
            found.add(str(file.relative_to(SOURCES.parent)))
    made = {"surgery_cli/store/filesystem/listing.py", "surgery_cli/inputs/buckets.py"}
    assert found - made == set(OF_ITS_OWN)


def test_paths_are_shown_where_the_working_directory_is_gone(tmp_path, monkeypatch):
    """What was done is reported: it was an output that cannot be written."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert shown_path(str(tmp_path / "gone" / "new")) == "new"
    (tmp_path / "gone").rmdir()
    assert shown_path(str(tmp_path / "new")) == str(tmp_path / "new")
