"""Of what a run of ours is writing, whoever reads it hears that first; of a rescue, where that run may be dead."""

import os
import shutil

import msgspec
import pytest

from surgery_cli.store.filesystem.owners import OWNER_FILE
from surgery_cli.store.filesystem.processes import Owner
from tests.cli.conftest import SAMPLES

STATES = ("living", "elsewhere", "dead", "unknown")
PLACES = (".new.surgery-tmp-0123abcd", ".new.surgery-tmp-0123abcd/new", "new")


def begun(folder, state, new="new"):
    """What stands on a disk while a run writes `new`, or did: most of what a checkpoint is."""
    staging = folder / f".{new}.surgery-tmp-0123abcd"
    shutil.copytree(SAMPLES / "digits_standard", staging / new)
    (staging / new / "_CHECKPOINT_METADATA").unlink()
    owner = msgspec.to_builtins(Owner.here())
    owner |= {"elsewhere": {"machine": "feedbeef"}, "dead": {"started": "1"}}.get(state, {})
    if state != "unknown":
        (staging / OWNER_FILE).write_bytes(msgspec.json.encode(owner))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "words",
    [("inspect", "{}"), ("diff", "{whole}", "{}"), ("rescale", "{}", "{out}", "**", "--by", "2")],
    ids=lambda words: words[0],
)
def test_who_reads_it_is_told_to_wait_before_anything_else(tmp_path, surgery, words, state, place):
    begun(tmp_path, state)
    there = tmp_path / place
    places = {"whole": SAMPLES / "digits_standard", "out": tmp_path / "out"}

    refused = surgery(*(word.format(there, **places) for word in words))

    is_named = place != "new"
    if state in ("living", "elsewhere"):
        assert refused.code == 3, refused.err
        what, why, fix = refused.err.splitlines()[:3]
        assert f"another run is writing to '{tmp_path}/new'" in what
        assert f"process {os.getpid()} on " in why
        assert PLACES[0] in why
        assert fix.strip().startswith("wait for it")
    if state == "living":
        assert "rescue" not in refused.err
        assert f"`kill {os.getpid()}`" in refused.err
    if state == "elsewhere":
        assert f"if it is over, `surgery clean {tmp_path}/new --stale`" in refused.err
        assert (f"`surgery rescue {there}`" in refused.err) == is_named
    if state in ("dead", "unknown"):
        assert "wait" not in refused.err
        assert ("an interrupted run of surgery was building" in refused.err) == is_named
        assert refused.code == (3 if is_named else 2)
    if state in ("dead", "unknown") and not is_named:
        what, why, fix = refused.err.splitlines()[:3]
        assert "does not exist: the run that was to write it did not end" in what
        assert PLACES[0] in why
        assert f"`surgery clean {tmp_path}/new --dry-run`" in fix


WAYS = {
    "the folder around it": ("new", "inspect", "{}"),
    "something in it": ("new", "inspect", "{}/new/params"),
    "an item of it": ("new", "inspect", "{}/new", "--item", "ema"),
    "an item of a step": ("ema", "inspect", "{}", "--item", "ema"),
    "an item of a step of a run": ("ema", "verify", "{}@250", "--item", "ema"),
}
"""How something is named that is nowhere yet, or never came: what is being written, and the words."""


@pytest.mark.covers(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", STATES)
def test_however_it_is_named_the_run_is_named_that_was_to_write_it(tmp_path, surgery, way, state):
    new, *words = WAYS[way]
    folder = tmp_path / "250"
    if new == "ema":
        shutil.copytree(SAMPLES / "digits_manager" / "250", folder)
    begun(folder, state, new)
    there = tmp_path if "@" in words[1] else folder

    refused = surgery(*(word.format(there) for word in words))

    what, why, fix = refused.err.splitlines()[:3]
    if state in ("living", "elsewhere"):
        assert refused.code == 3
        assert f"another run is writing to '{folder}/{new}'" in what
    else:
        assert refused.code == 2
        assert f"'{folder}/{new}' does not exist: the run that was to write it did not end" in what
        assert f".{new}.surgery-tmp-0123abcd" in why
        assert f"`surgery clean {folder}/{new} --dry-run`" in fix


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", [*PLACES, "."])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("to", [[], ["{out}"]], ids=["looks", "writes"])
def test_no_rescue_of_what_a_living_run_writes(tmp_path, surgery, to, state, place):
    """Of what is not written yet it would say that it is lost; where the run may be over, it says that beside."""
    begun(tmp_path / "runs", state)
    there, out = tmp_path / "runs" / place, tmp_path / "out"

    found = surgery("rescue", there, *(word.format(out=out) for word in to))

    said = " ".join((found.err + found.out).split())
    if state == "living":
        assert found.err == surgery("inspect", there if place != "." else there / PLACES[0]).err
        assert f"another run is writing to '{tmp_path}/runs/new'" in said
        assert (found.code, found.out) == (3, "")
    elif place == "new":
        assert found.code == (3 if state == "elsewhere" else 2)
        assert ("another run is writing to" in said) == (state == "elsewhere")
    else:
        assert found.code == 0, found.err
        assert ("whether that still runs cannot be seen from here" in said) == (
            state == "elsewhere"
        )
    assert out.exists() == bool(to and found.code == 0)


def test_what_runs_build_in_a_broken_step_is_no_part_of_what_is_rescued(tmp_path, surgery):
    step = tmp_path / "step"
    shutil.copytree(SAMPLES / "digits_standard", step / "default")
    shutil.copytree(SAMPLES / "digits_standard", step / ".ema.surgery-tmp-0123abcd/ema")
    shutil.copytree(SAMPLES / "digits_standard", step / "ema.surgery-old/ema")
    assert surgery("rescue", step, tmp_path / "out").code == 0
    assert not list((tmp_path / "out").rglob("*ema*"))
