"""Nobody is told to remove a place in which more stands than the one thing that is in the way."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

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


HOLDING = {
    "several checkpoints": _several,
    "steps in two formats": _of_formats,
    "a run without a finished step": _unfinished,
    "folders of work": _work,
    "files that are checkpoints": _files,
}


@pytest.mark.parametrize("named", ["by its path", ".", "..", "./"])
@pytest.mark.parametrize("holding", HOLDING)
@pytest.mark.parametrize("command", ["rescale", "force", "rescue"])
def test_what_holds_more_is_never_advised_to_go(
    surgery, tmp_path, monkeypatch, command, holding, named
):
    place = tmp_path / "place"
    place.mkdir()
    HOLDING[holding](place)
    before = sorted(place.rglob("*"))
    given = str(place) if named == "by its path" else named
    if named != "by its path":
        inside = place / "inside" if named == ".." else place
        inside.mkdir(exist_ok=True)
        monkeypatch.chdir(inside)
    source = SAMPLES / "digits_standard"
    words = {
        "rescale": ("rescale", source, given, *EDIT),
        "force": ("rescale", source, given, *EDIT, "--force"),
        "rescue": ("rescue", source, given),
    }[command]
    refused = surgery(*words)
    assert refused.code == 2, refused.out
    assert not REMOVAL.search(refused.err), refused.err
    assert "remove it" not in refused.err
    assert set(before) <= set(place.rglob("*"))


def test_not_even_one_damaged_checkpoint_in_which_a_shell_stands(surgery, tmp_path, monkeypatch):
    broken = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "broken")
    (broken / "manifest.ocdbt").unlink()
    shutil.rmtree(broken / "d", ignore_errors=True)
    (broken / "_METADATA").write_text("{")
    monkeypatch.chdir(broken)
    refused = surgery("rescale", SAMPLES / "digits_manager", ".", *EDIT)
    assert refused.code == 2
    assert not REMOVAL.search(refused.err)


def test_one_thing_in_the_way_is_removed_as_advised(surgery, tmp_path):
    for name in ("file", "unmanifested"):
        place = tmp_path / name
        if name == "file":
            place.write_text("no checkpoint")
        else:
            (place / "d").mkdir(parents=True)
            (place / "d" / "0f").write_bytes(b"data")
        words = ("rescale", SAMPLES / "digits_manager", place, *EDIT)
        refused = surgery(*words)
        assert refused.code == 2
        (advised,) = REMOVAL.findall(refused.err)
        assert shlex.split(advised)[-1] == str(place)
        assert os.system(advised) == 0
        assert surgery(*words).code == 0


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
