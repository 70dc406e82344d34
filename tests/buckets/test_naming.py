"""Wherever a command or a plan names something to read, it may lie in a bucket."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import TREE, saved, uploaded


def test_every_way_to_name_one_leads_there(bucket, surgery, tmp_path, monkeypatch):
    """Donor, sources of a plan that lies there itself, files of arrays, `--like`, both sides of a comparison."""
    monkeypatch.chdir(tmp_path)
    here = saved(tmp_path / "ck")
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    np.save(tmp_path / "by.npy", np.float32([3]))
    np.savez(tmp_path / "more.npz", w=np.zeros(12, np.float32))
    save_file({"b": np.full((3, 2), 7, np.float32)}, tmp_path / "b.safetensors")
    for name in ("by.npy", "more.npz", "b.safetensors"):
        bucket.upload(tmp_path / name, f"gs://bkt/files/{name}")
        (tmp_path / name).unlink()
    bucket.put(
        "bkt",
        "plans/edit.yaml",
        b"sources: {donor: ../runs/ck}\nedits:\n"
        b"- {op: replace, at: params/b, with: 'gs://bkt/files/b.safetensors:b'}\n"
        b"- {op: add-scaled, at: params/w, with: donor, scale: 1}\n",
    )
    assert surgery("apply", there, "new", "gs://bkt/plans/edit.yaml").code == 0
    written = open_checkpoint("new")
    assert (written.read(LeafPath(("params", "w"))) == 2 * TREE["params"]["w"]).all()
    assert (written.read(LeafPath(("params", "b"))) == 7).all()
    assert (
        surgery("replace", "ck", "zero", "params/w", "--with", "gs://bkt/files/more.npz:w").code
        == 0
    )
    assert surgery("diff", there, "ck").code == 0
    assert surgery("diff", "zero", there).code == 1
    assert surgery("verify", "ck", "--like", there).code == 0
    assert surgery("verify", there, "--like", "ck").code == 0
    ended = surgery("apply", there, "x", "gs://bkt/plans/none.yaml")
    assert ended.code == 2
    assert ended.err.splitlines() == [
        "error: there is no plan 'gs://bkt/plans/none.yaml'",
        "  check its name",
    ]
    assert not Path("gs:").exists()


def test_steps_named_in_two_formats_have_no_newest(service, surgery, tmp_path):
    import orbax.checkpoint as ocp

    for step, form in ((1, {}), (2, {"step_prefix": "step"})):
        options = ocp.CheckpointManagerOptions(**form)
        with ocp.CheckpointManager(tmp_path / str(step), options=options) as manager:
            manager.save(step, args=ocp.args.StandardSave(TREE))
        run = uploaded(service, tmp_path / str(step), f"{service.root}/run")
    for named in (run, f"{run}@latest"):
        ended = surgery("inspect", named)
        assert ended.code == 2
        assert "named in 2 formats: `N` (1), `step_N` (step_2)" in ended.err
        assert f"name one, as '{run}/1' or '{run}/step_2'" in ended.err
    assert surgery("inspect", f"{run}/step_2").code == 0
    assert surgery("rescale", f"{run}@2", run, "params/w", "--by", "2", "--as-step", "3").code == 0
    assert surgery("inspect", f"{run}/step_3").code == 0
    assert "named in 2 formats" in surgery("doctor", run).out


@pytest.mark.parametrize("odd", [".", "", ".."])
@pytest.mark.parametrize("inside", ["commit_success.txt", "d/part", ""])
@pytest.mark.parametrize("command", ["inspect", "verify", "doctor", "rename"])
def test_objects_whose_names_no_path_has_are_named(
    service, surgery, tmp_path, odd, inside, command
):
    """They were looked for under the names of others, or without end."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.put("bkt", f"ck/{odd}/{inside}", b"x")
    more = [f"{service.root}/new", "params/w", "--to", "params/v"] if command == "rename" else []
    refused = surgery(command, there, *more)
    assert refused.code == 3, refused
    assert "objects there have names that no path has" in refused.out + refused.err
