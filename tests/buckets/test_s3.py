"""The same on `s3://`, where Orbax neither saves nor restores: what it saved here was copied there."""

import os

import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import RESCALED, SAMPLES, TREE, saved
from tests.fixture_truths import FIXTURES

LAYOUTS = [
    "orbax-0.12.8/nnx_optimizer",
    "orbax-0.8.0/sharded4_zarr3",
    "orbax-0.5.10/sharded4_noocdbt",
]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_checkpoint_is_there_what_it_is_here(s3, name):
    here = FIXTURES / name
    there = s3.upload(here, f"s3://bkt/runs/{name.replace('/', '_')}")
    opened, local = open_checkpoint(there), open_checkpoint(str(here))
    assert opened.tree == local.tree
    assert opened.layout == local.layout
    for path in local.tree:
        np.testing.assert_array_equal(opened.read(path), local.read(path))
    assert surgery.diff(there, str(here)).equal


def test_a_result_on_this_disk_is_restored_by_orbax(s3, tmp_path):
    there = s3.upload(saved(tmp_path / "ck"), "s3://bkt/ck")
    large = np.random.default_rng(0).standard_normal((600, 1000)).astype(np.float32)
    save_file({"b": np.full((3, 2), 7, np.float32), "large": large}, tmp_path / "b.safetensors")
    file = s3.upload(tmp_path / "b.safetensors", "s3://bkt/b.safetensors")
    replace = operation_from_options("replace", {"at": "params/b", "with": f"{file}:b"})
    plan = plan_of([*RESCALED.edits, replace])
    surgery.apply(there, str(tmp_path / "new"), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new")
    np.testing.assert_array_equal(restored["params"]["w"], 2 * TREE["params"]["w"])
    assert (restored["params"]["b"] == 7).all()
    assert restored["opt_state"]["count"] == 3


def test_a_large_leaf_is_read_by_tensorstore_from_there(s3, tmp_path):
    tree = {"w": np.random.default_rng(0).standard_normal((700, 1000)).astype(np.float32)}
    there = s3.upload(saved(tmp_path / "ck", tree), "s3://bkt/large")
    opened = open_checkpoint(there)
    (path,) = opened.tree
    np.testing.assert_array_equal(opened.read(path), tree["w"])


def test_a_step_is_finished_by_its_name(s3):
    there = s3.upload(SAMPLES / "digits_manager", "s3://bkt/runs/digits")
    s3.upload(SAMPLES / "digits_manager" / "500", f"{there}/600.orbax-checkpoint-tmp-1")
    assert open_checkpoint(there).step == 500
    assert open_checkpoint(f"{there}@250").step == 250
    with pytest.raises(CheckpointError, match="is an unfinished save"):
        open_checkpoint(f"{there}/600.orbax-checkpoint-tmp-1")


def test_what_is_not_there_is_said(s3):
    with pytest.raises(CheckpointError) as refused:
        open_checkpoint("s3://no-such-bucket/ck")
    assert "there is no bucket 'no-such-bucket'" in refused.value.problems[0].why


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({}, None),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "https://s3-fips.us-east-2.amazonaws.com"),
        (
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            "https://s3.dualstack.us-east-2.amazonaws.com",
        ),
        (
            {"AWS_ENDPOINT_URL": "https://bucket.vpce-1a2b.s3.us-east-2.vpce.amazonaws.com"},
            "https://bucket.vpce-1a2b.s3.us-east-2.vpce.amazonaws.com",
        ),
    ],
    ids=str,
)
def test_both_libraries_ask_at_the_same_address_of_amazon(monkeypatch, tmp_path, given, host):
    """TensorStore was told of none below amazonaws.com, and read arrays at the ordinary one."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    keys |= {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_DEFAULT_REGION": "us-east-2"}
    for name, value in (keys | given).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("surgery_cli.store.filesystem.amazon_s3.check_way", lambda *_: None)
    spec = AmazonS3()._connection
    assert spec.get("endpoint") == host
    assert spec.get("aws_region") == (host and "us-east-2")
