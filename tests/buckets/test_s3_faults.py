"""What `s3://` may answer: faults that pass change no result, those that stay are told in words and leave nothing."""

import os
import subprocess
import sys

import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import RESCALED, TREE, saved, uploaded
from tests.buckets.server import Faults

LARGE = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
"""TensorStore's driver reads it; what is smaller is read by s3fs."""


@pytest.fixture
def source(s3, tmp_path):
    tree = {**TREE, "params": {**TREE["params"], "w": LARGE}}
    return s3.upload(saved(tmp_path / "ck", tree), "s3://bkt/ck")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", ["503", "reset", "lost", "cut"])
def test_faults_change_no_result(s3, source, kind):
    before = s3.names()
    s3.faults = Faults(kind, every=6)
    surgery.apply(source, "s3://bkt/new", RESCALED)
    s3.faults = Faults()
    written = open_checkpoint("s3://bkt/new")
    np.testing.assert_array_equal(written.read(LeafPath(("params", "w"))), 2 * LARGE)
    assert surgery.verify("s3://bkt/new").agrees
    assert [name for name in s3.names() if not name.startswith("new/")] == before


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("status", "said"),
    [("400", "the credentials have expired"), ("403", "S3 does not know these credentials")],
)
@pytest.mark.parametrize("refused", ["read", "write", "copy", "everything"])
def test_what_stays_refused_is_told_and_leaves_nothing(s3, source, status, said, refused):
    before = s3.names()
    s3.faults = Faults(status, every=1, among=lambda kind: refused in (kind, "everything"))
    with pytest.raises(SurgeryError) as failed:
        surgery.apply(source, "s3://bkt/new", RESCALED)
    s3.faults = Faults()
    (problem,) = failed.value.problems
    assert said in problem.why
    assert failed.value.exit_code == (3 if refused in ("read", "everything") else 4)
    assert s3.names() == before


def test_a_bucket_that_is_not_there_is_told(s3, source):
    with pytest.raises(SurgeryError) as failed:
        surgery.apply(source, "s3://no-such/new", RESCALED)
    assert failed.value.exit_code == 3
    assert failed.value.problems[0].what == "the destination's bucket 's3://no-such' is not there"
    assert "there is no bucket 'no-such'" in failed.value.problems[0].why


def command(source, new="", *, environment, home):
    """A command in a process of its own, as libraries keep what they once found of credentials."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    known |= {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", **environment}
    new = new or f"{source.partition('://')[0]}://bkt/new"
    words = [sys.executable, "-m", "surgery_cli", "rescale", source, new, "params/w"]
    done = subprocess.run(
        [*words, "--by", "2", "--quiet"], env=known, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


KEYS = ("[default]", "aws_access_key_id = key", "aws_secret_access_key = secret", "")


def test_credentials_are_found_where_the_service_s_own_tools_find_them(s3, source, tmp_path):
    refused, _, said = command(source, environment={"AWS_ENDPOINT_URL": s3.url}, home=tmp_path)
    assert refused == 3
    assert "no credentials for it" in said
    assert len(said.splitlines()) == 3
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("\n".join(KEYS))
    (folder / "config").write_text(f"[default]\nregion = eu-west-3\nendpoint_url = {s3.url}\n")
    s3.log.clear()
    assert command(source, environment={}, home=tmp_path) == (0, "", "")
    signed = {r.headers["authorization"].split("/")[2] for r in s3.log}
    assert signed == {"eu-west-3"}


def test_no_library_speaks_on_standard_error(bucket, s3, source, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "gs", {"params": {"w": LARGE}}), "gs://bkt/ck")
    assert command(there, environment={}, home=tmp_path) == (0, "", "")
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert command(source, environment={**keys, "AWS_ENDPOINT_URL": s3.url}, home=tmp_path) == (
        0,
        "",
        "",
    )


def test_a_public_bucket_is_read_without_credentials_and_not_written(s3, source, tmp_path):
    environment = {"AWS_ENDPOINT_URL": s3.url}
    s3.is_public = True
    here = str(tmp_path / "new")
    assert command(source, here, environment=environment, home=tmp_path) == (0, "", "")
    np.testing.assert_array_equal(open_checkpoint(here).read(LeafPath(("params", "w"))), 2 * LARGE)
    assert not any("authorization" in request.headers for request in s3.log)
    refused, _, said = command(source, environment=environment, home=tmp_path)
    assert refused == 4
    assert "no credentials for it" in said
    assert len(said.splitlines()) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("redirects", [True, False])
def test_a_bucket_in_another_region_is_no_damage(s3, source, tmp_path, redirects):
    """What s3fs asks, botocore sends on; TensorStore looks for the region of Amazon's own buckets, and of no others."""
    s3.region, s3.redirects = "eu-north-1", redirects
    before = s3.names()
    environment = {**s3.environment, "AWS_DEFAULT_REGION": "us-west-2"}
    refused, _, said = command(source, environment=environment, home=tmp_path)
    assert refused == 3
    assert "the bucket is in another region, or at another endpoint" in said
    assert "set AWS_DEFAULT_REGION" in said
    assert "damaged" not in said
    assert s3.names() == before
    environment["AWS_DEFAULT_REGION"] = "eu-north-1"
    assert command(source, environment=environment, home=tmp_path) == (0, "", "")
