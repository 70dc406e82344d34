"""Rescue of what stands in buckets, and results there: judged by Orbax once they were copied to this disk."""

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import DestinationError
from tests.buckets.checkpoints import MARK, TREE, saved, uploaded
from tests.buckets.test_destinations import downloaded

LAYOUTS = [{}, {"use_ocdbt": False}]


@pytest.fixture(params=LAYOUTS, ids=["ocdbt", "leaf folders"])
def how(request):
    return request.param


def _restored(server, name, tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(downloaded(server, name, tmp_path / "down"))


def test_an_upload_that_stopped_is_rescued_where_it_stands(service, how, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck", **how), f"{service.root}/ck")
    for key in list(service.names("ck/")):
        lost = (
            "ck/_METADATA",
            "ck/manifest.ocdbt",
            f"ck/{MARK}",
            "ck/params.b/0.0",
            "ck/_sharding",
        )
        if key in lost:
            service.remove(key)
    before = {key: service.content(key) for key in service.names("ck/")}

    found = surgery.rescue(there)
    surgery.rescue(there, f"{service.root}/new", allow_partial=True)

    rows = {row.path: row.state for row in found.leaves}
    is_there = "whole" if not how else "lost"
    assert rows == {"params/w": "whole", "params/b": is_there, "opt_state/count": "whole"}
    tree = _restored(service, "new", tmp_path)
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"])
    assert tree["opt_state"]["count"] == 3
    assert ("b" in tree["params"]) == (not how)
    assert f"new/{MARK}" in service.names("new/")
    assert {key: service.content(key) for key in service.names("ck/")} == before
    assert not [key for key in service.names("") if "surgery-tmp" in key]


def test_from_a_bucket_to_a_disk_with_an_older_step_in_the_bucket(service, how, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck", **how), f"{service.root}/ck")
    older = {"params": {"w": -TREE["params"]["w"], "b": TREE["params"]["b"]}, **_count(1)}
    uploaded(service, saved(tmp_path / "old", older, **how), f"{service.root}/old")
    data = [k for k in service.names("ck/") if "params.w/0" in k or "ocdbt.process_0/d/" in k]
    service.remove(max(data, key=lambda key: len(service.content(key))))

    surgery.rescue(there, str(tmp_path / "new"), fill_from=f"{service.root}/old")

    with ocp.PyTreeCheckpointer() as checkpointer:
        w = checkpointer.restore(tmp_path / "new")["params"]["w"]
    assert np.array_equal(np.abs(w), TREE["params"]["w"])


def _count(number):
    return {"opt_state": {"count": np.int32(number)}}


def test_what_stands_in_a_bucket_is_not_replaced(service, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    with pytest.raises(DestinationError, match="exists"):
        surgery.rescue(there, there)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("origin", "target"), [("gs", "gs"), ("gs", "s3"), ("s3", "gs"), ("disk", "gs"), ("disk", "s3")]
)
def test_the_command_writes_where_the_library_does(
    surgery, bucket, s3, tmp_path, origin, target, how
):
    servers = {"gs": bucket, "s3": s3}
    broken = saved(tmp_path / "ck", **how)
    if origin != "disk":
        broken = uploaded(servers[origin], broken, f"{origin}://bkt/ck")
    ended = surgery("rescue", broken, f"{target}://bkt/runs/new")
    assert ended.code == 0, ended.err
    assert f"rescued: 3 leaves in {target}://bkt/runs/new" in ended.out
    restored = _restored(servers[target], "runs/new", tmp_path)
    np.testing.assert_array_equal(restored["params"]["w"], TREE["params"]["w"])
    assert restored["opt_state"]["count"] == 3
    assert {name.split("/")[1] for name in servers[target].names("runs/")} == {"new"}
