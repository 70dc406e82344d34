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


def begun(folder, state):
    """What stands on a disk while a run writes `new`, or did: most of the leaves of a checkpoint."""
    staging = folder / PLACES[0]
    shutil.copytree(SAMPLES / "digits_standard", staging / "new")
    (staging / "new" / "_CHECKPOINT_METADATA").unlink()
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
