"""What is being built may be removed at any moment, by whoever cleans up, or exchanges the run in which it stands."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.local_disk import LocalDisk
from tests.store.test_vanishing_sources import CALLS, TREE, _counted

PLAN = plan_of([operation_from_options("rescale", {"at": "**/w", "by": 2.0})])
LAYOUTS = pytest.mark.parametrize("use_ocdbt", [True, False], ids=["ocdbt", "leaves"])


class Meddled(LocalDisk):
    """A disk on which ``meddle`` comes right before the ``at``-th call that is about what is being built."""

    def __init__(self, run: Path, at: int, meddle) -> None:
        self.run, self.at, self.meddle = run, at, meddle
        self.calls = 0

    def count(self, place: object) -> None:
        staging = next(self.run.glob(".*.surgery-tmp-*"), None)
        if staging is None or not Path(str(place)).is_relative_to(staging / "9"):
            return
        self.calls += 1
        if self.calls == self.at:
            self.meddle(self.run, staging, Path(str(place)))


for _name in CALLS:
    setattr(Meddled, _name, _counted(_name))


def _gone(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _exchanged(run: Path, staging: Path, place: Path) -> None:
    """Another checkpoint in the place of the whole run: what is built in it goes with the old one."""
    run.rename(run.with_name("old"))
    run.with_name("another").rename(run)


MEDDLERS = {
    "all": lambda run, staging, place: shutil.rmtree(staging),
    "what is asked for": lambda run, staging, place: _gone(place),
    "the whole run": _exchanged,
}


def _refusal(run: Path, seal: bool) -> SurgeryError | None:
    """Why the new step was not made; None if it was."""
    try:
        surgery.apply(str(run / "7"), str(run / "9"), PLAN, options=Options(seal=seal))
    except SurgeryError as error:
        return error
    return None


@pytest.mark.covers(1)
@LAYOUTS
@pytest.mark.parametrize("what", MEDDLERS)
@pytest.mark.parametrize("seal", [False, True], ids=["plain", "sealed"])
def test_of_a_result_that_another_program_removes_nothing_appears_and_no_checkpoint_is_called_damaged(
    use_ocdbt, what, seal, tmp_path, monkeypatch, pytestconfig
):
    stride = 1 if pytestconfig.getoption("--every-combination") else 13
    for name, by in (("saved", 1.0), ("saved-too", 3.0)):
        tree = {**TREE, "params": {k: v * by for k, v in TREE["params"].items()}}
        with ocp.PyTreeCheckpointer(use_ocdbt=use_ocdbt) as checkpointer:
            checkpointer.save(tmp_path / name / "7", tree)
    outcomes = set()
    for at in count(1, stride):
        run = tmp_path / str(at) / "run"
        shutil.copytree(tmp_path / "saved", run)
        shutil.copytree(tmp_path / "saved-too", run.with_name("another"))
        disk = Meddled(run, at, MEDDLERS[what])
        monkeypatch.setattr(filesystem, "_DISK", disk)
        refused = _refusal(run, seal)
        outcomes.add(refused.exit_code if refused else 0)
        if refused is None:
            with ocp.PyTreeCheckpointer() as checkpointer:
                found = checkpointer.restore(run / "9")
            np.testing.assert_array_equal(found["params"]["w"], 2 * TREE["params"]["w"])
            np.testing.assert_array_equal(found["params"]["b"], TREE["params"]["b"])
        else:
            assert "copy" not in str(refused)
            assert "worth a report" not in str(refused)
            assert [path.name for path in run.iterdir()] == ["7"]
        monkeypatch.undo()
        shutil.rmtree(run.parent)
        if disk.calls < at:
            break
    if (
        what == "the whole run"
    ):  # what is made in its place at that moment can fail before the source is looked at
        outcomes -= {4}
    assert outcomes == {0, 3 if what == "the whole run" else 4}
