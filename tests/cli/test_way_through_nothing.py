"""Destinations whose way leads through a directory that is not there: for the system, `..` behind it leads nowhere."""

import numpy as np
import orbax.checkpoint as ocp
import pytest


@pytest.mark.parametrize("stands", [False, True])
@pytest.mark.parametrize(
    "more", [(), ("--dry-run",), ("--resume",), ("--force",), ("--as-step", "7")], ids=str
)
def test_it_is_refused_before_anything_else(surgery, tmp_path, monkeypatch, stands, more):
    """A preview was green where the destination stood, and the run did all its work before it was refused."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", *["new"] * stands):
        with ocp.CheckpointManager(tmp_path / name) as manager:
            manager.save(3, args=ocp.args.StandardSave({"w": np.ones(3, np.float32)}))
    before = sorted(tmp_path.rglob("*"))
    done = surgery("rescale", "run", "nofolder/../new", "w", "--by", "2", *more)
    assert done.code == 2
    assert "leads through 'nofolder', which is no directory" in done.err
    assert sorted(tmp_path.rglob("*")) == before
