"""Checkpoints in buckets get the layout of another topology there, and tell what hosts would read of them."""

import jax
import pytest
from etils import epath

from surgery_cli import surgery
from surgery_cli.planning import plan_of
from surgery_cli.settings.reshard import Reshard
from tests.buckets.checkpoints import uploaded
from tests.layout.states import restored, save, state, values

LAYOUT = Reshard(mesh={"fsdp": 4, "tensor": 2}, spec={"params/**/kernel": "fsdp,tensor"})


@pytest.mark.parametrize("ocdbt", [True, False])
def test_orbax_restores_the_new_layout_from_the_bucket(bucket, tmp_path, ocdbt):
    source = save(tmp_path / "ck", state(), ocdbt=ocdbt)
    there = uploaded(bucket, source, "gs://bkt/ck")
    told = surgery.inspect(there, layout=LAYOUT).hosts
    assert told == surgery.inspect(str(source), layout=LAYOUT).hosts
    surgery.apply(there, "gs://bkt/new", plan_of([], reshard=LAYOUT))
    found = restored(epath.Path("gs://bkt/new"))
    kernel = found["opt_state"][0]["mu"]["dense"]["kernel"]
    assert kernel.sharding.spec == jax.sharding.PartitionSpec("fsdp", "tensor")
    assert values(found) == values(restored(source))
    assert surgery.inspect("gs://bkt/new", layout=LAYOUT).hosts.unused_bytes == 0
