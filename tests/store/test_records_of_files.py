"""Flax saves over a step and leaves the record beside it: that is of the file that stood there, and of no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import flax.serialization
import jax.numpy as jnp
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning.reading import plan_from_document

HALVE = plan_from_document({"edits": [{"op": "rescale", "at": "params/head", "by": 0.5}]})
OTHER = plan_from_document({"edits": [{"op": "rescale", "at": "params/body", "by": 2.0}]})


def state(seed: int) -> dict[str, Any]:
    """Two leaves, of which samples are a part."""
    draw = np.random.default_rng(seed).standard_normal
    return {
        "params": {
            "body": jnp.asarray(draw((1500, 1024)), jnp.float32),
            "head": jnp.asarray(draw((64, 9)), jnp.float32),
        },
        "step": jnp.int32(40),
    }


@pytest.fixture(params=["checkpoint_40", "best"])
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A result that is one file, with its record beside it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoint_30").write_bytes(flax.serialization.to_bytes(state(0)))
    place = tmp_path / "run" / request.param
    surgery.apply(str(tmp_path / "run/checkpoint_30"), str(place), HALVE)
    return place


def save_over(place: Path, seed: int) -> None:
    """As Flax saves step 40 of another training: of the same size."""
    size = place.stat().st_size
    place.write_bytes(flax.serialization.to_bytes(state(seed)))
    assert place.stat().st_size == size


LOOKS = {
    "edit": lambda place, new: surgery.apply(place, new, OTHER),
    "preview": lambda place, new: surgery.plan(place, OTHER),
    "seal": lambda place, new: surgery.seal(place),
    "log": lambda place, new: surgery.log(place),
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_record_of_a_file_that_was_saved_over_is_refused(made, tmp_path, look):
    LOOKS[look](str(made), str(tmp_path / "before"))
    save_over(made, seed=1)
    with pytest.raises(CheckpointError) as refused:
        LOOKS[look](str(made), str(tmp_path / "new"))
    (problem,) = refused.value.problems
    assert "is not what it was" in problem.what
    assert "damaged since, or something else was saved over it" in problem.why
    assert not (tmp_path / "new").exists()
    first, *_, last = (one.split() for one in problem.fix.split("`")[1::2])
    assert first[:2] == ["surgery", "verify"]
    assert last[0] == "rm"
    Path(last[1]).unlink()
    LOOKS[look](str(made), str(tmp_path / "new"))


def test_what_such_a_record_says_is_a_finding(made):
    save_over(made, seed=1)
    assert not surgery.verify(str(made)).agrees


@pytest.mark.parametrize("how", ["copied", "touched", "moved"])
def test_a_file_that_is_the_same_has_its_record(made, tmp_path, how):
    if how == "touched":
        made.touch()
    elif how == "moved":
        made.parent.rename(tmp_path / "elsewhere")
    else:
        shutil.copytree(made.parent, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    folder = made.parent if how == "touched" else tmp_path / "elsewhere"
    assert surgery.verify(str(folder / made.name)).agrees


def test_a_record_of_before_says_nothing_of_its_file(made, tmp_path):
    (record,) = (p for p in made.parent.iterdir() if p.name.endswith(".surgery.json"))
    document = json.loads(record.read_text())
    assert document.pop("of_file").startswith("sha256:")
    document["content"] = ""
    record.write_text(json.dumps(document))
    surgery.apply(str(made), str(tmp_path / "new"), OTHER)
