"""What is read may go at any moment, as old steps of a run do, and what is built: it is said, and nothing is left."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, MissingError, WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.local_disk import LocalDisk
from surgery_cli.store.write.item import PytreeWriter

TREE = {"params": {"w": np.ones((30, 30), np.float32), "b": np.ones(3, np.float32)}, "s": "hi"}
CALLS = (
    "entries",
    "below",
    "status",
    "real",
    "is_link",
    "open",
    "copy",
    "clone",
    "link",
    "kvstore",
)


class Vanishing(LocalDisk):
    """A disk from which something is taken right before its ``at``-th call: the step, or what that call is about."""

    def __init__(self, step: Path, aside: Path, at: int, what: str) -> None:
        self.step, self.aside, self.at, self.what = step, aside, at, what
        self.calls = 0
        self.taken: Path | None = None

    def count(self, place: object) -> None:
        self.calls += 1
        victim = self.step if self.what == "step" else Path(str(place))
        if self.calls == self.at and victim.is_relative_to(self.step) and victim.exists():
            victim.rename(self.aside)
            self.taken = victim

    def put_back(self) -> None:
        if self.taken is not None:
            self.aside.rename(self.taken)


def _counted(name: str):
    own = getattr(LocalDisk, name)

    def call(self, place, *rest):
        self.count(place)
        return own(self, place, *rest)

    return call


for _name in CALLS:
    setattr(Vanishing, _name, _counted(_name))

PLAN = plan_of([operation_from_options("rescale", {"at": "**/w", "by": 2.0})])
USES = {
    "seal": lambda step, _: surgery.seal(step),
    "inspect": lambda step, _: surgery.inspect(step),
    "statistics": lambda step, _: surgery.inspect(step, stats=True, digests=True),
    "verify": lambda step, _: surgery.verify(step),
    "diff": lambda step, other: surgery.diff(step, f"{other}-copy"),
    "plan": lambda step, _: surgery.plan(step, PLAN),
    "apply": lambda step, other: surgery.apply(step, f"{other}-out", PLAN),
}
STRIDE = {"apply": 13, "seal": 7}
"""Of a use that takes longest, every so manieth call, of others every third; every one with ``--every-combination``."""


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", ["step", "file"])
@pytest.mark.parametrize("use_ocdbt", [True, False], ids=["ocdbt", "leaves"])
def test_what_vanishes_is_said_to_be_gone_whenever_it_goes(
    use, what, use_ocdbt, tmp_path, monkeypatch, pytestconfig
):
    step, other = tmp_path / "run" / "1", tmp_path / "other"
    with ocp.PyTreeCheckpointer(use_ocdbt=use_ocdbt) as checkpointer:
        checkpointer.save(step, TREE)
    shutil.copytree(step, f"{other}-copy")
    untouched = sorted(step.rglob("*"))
    every = pytestconfig.getoption("every_combination")
    for at in count(1, 1 if every else STRIDE.get(use, 3)):
        disk = Vanishing(step, tmp_path / "aside", at, what)
        monkeypatch.setattr(filesystem, "_DISK", disk)
        try:
            USES[use](str(step), str(other))
        except (
            CheckpointError,
            MissingError,
        ):  # it was gone meanwhile, or before anything was opened
            assert not Path(f"{other}-out").exists()
        monkeypatch.undo()
        disk.put_back()
        if disk.calls < at:
            break
        for made in (step / "surgery.json", step.with_name("1.surgery.json")):
            made.unlink(missing_ok=True)
        shutil.rmtree(f"{other}-out", ignore_errors=True)
        assert sorted(step.rglob("*")) == untouched
        assert [path.name for path in step.parent.iterdir()] == ["1"]


@pytest.mark.parametrize("use_ocdbt", [True, False], ids=["ocdbt", "leaves"])
def test_a_result_of_which_some_was_removed_does_not_appear(use_ocdbt, tmp_path, monkeypatch):
    """TensorStore makes the folders anew that are gone: what was copied before would be missing."""
    source, folder = tmp_path / "source", tmp_path / "results"
    finish = PytreeWriter.finish
    folder.mkdir()
    with ocp.PyTreeCheckpointer(use_ocdbt=use_ocdbt) as checkpointer:
        checkpointer.save(source, TREE)

    def cleaned_afterwards(writer):
        finish(writer)
        (staging,) = folder.glob(".*.surgery-tmp-*")
        for path in (*staging.rglob("_*"), *staging.rglob("commit_success.txt")):
            path.unlink()

    monkeypatch.setattr(PytreeWriter, "finish", cleaned_afterwards)
    with pytest.raises(WriteError, match="was removed while the new checkpoint was built"):
        surgery.apply(str(source), str(folder / "new"), PLAN)
    assert list(folder.iterdir()) == []
