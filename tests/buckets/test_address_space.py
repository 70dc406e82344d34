"""Under `ulimit -v`, a command is refused before any work, or works: with the figure that the refusal gives."""

import re
import subprocess
import sys

import numpy as np
import pytest

from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import saved, uploaded

MANY = {"params": {f"l{number}": np.ones((8, 8), np.float32) for number in range(120)}}
"""In more files than are asked for at once."""


def edited(source, new, *, most_kib, option="-v"):
    words = ["rescale", source, new, "params/l1*", "--by", "2", "--quiet"]
    shell = f'ulimit -c 0; ulimit {option} {most_kib}; exec "$@"'
    command = ["bash", "-c", shell, "-", sys.executable, "-m", "surgery_cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def advised_in(refused, option):
    assert refused.returncode == 2, refused.stderr
    (advised,) = re.findall(rf"`ulimit {option} (\d+)`, or none", refused.stderr)
    return int(advised)


@pytest.fixture(params=["disk", "gs", "s3"])
def places(request, tmp_path):
    """A checkpoint, where to write, what tells what stands there, whether it is a bucket."""
    here = saved(tmp_path / "ck", MANY, use_ocdbt=False)
    if request.param == "disk":
        return str(here), str(tmp_path / "new"), lambda: sorted(tmp_path.iterdir()), False
    server = request.getfixturevalue("bucket" if request.param == "gs" else "s3")
    there = uploaded(server, here, f"{server.root}/ck")
    return there, f"{server.root}/new", lambda: sorted(server.names()), True


@pytest.mark.parametrize("option", ["-v", "-d"])
def test_below_the_limit_that_is_advised_nothing_is_done_and_under_it_all(places, option):
    source, new, standing, has_bucket = places
    if option == "-d" and not has_bucket:
        pytest.skip("values are held against what is left of it as well")
    before = standing()
    refused = edited(source, new, most_kib=150_000, option=option)
    advised = advised_in(refused, option)
    if has_bucket:  # what does to load the program does not do for a bucket
        refused = edited(source, new, most_kib=advised, option=option)
        assert "is not enough to work with a bucket" in refused.stderr
        advised = advised_in(refused, option)
    advised_in(edited(source, new, most_kib=advised - 1, option=option), option)
    assert standing() == before
    done = edited(source, new, most_kib=advised, option=option)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(open_checkpoint(new).read(LeafPath(("params", "l100"))), 2)


def test_a_donor_in_a_bucket_counts(bucket, tmp_path):
    """No argument of the command names the bucket."""
    here = saved(tmp_path / "ck", {"params": {"w": np.ones(3, np.float32)}})
    uploaded(bucket, here, "gs://bkt/donor")
    plan = tmp_path / "plan.yaml"
    edit = "edits: [{op: replace, at: params/w, with: donor}]"
    plan.write_text(f"sources: {{donor: 'gs://bkt/donor'}}\n{edit}\n")
    words = [sys.executable, "-m", "surgery_cli", "apply", str(here), str(tmp_path / "new")]
    for shell, code in (("ulimit -v 450000; ", 2), ("", 0)):
        command = ["bash", "-c", f'{shell}exec "$@"', "-", *words, str(plan)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("is not enough to work with a bucket" in done.stderr) == bool(code)
        assert (tmp_path / "new").exists() != bool(code)
