"""Of what a run is writing to a bucket, whoever reads it hears that first; of a rescue, where that run may be dead."""

import json

import msgspec
import pytest

from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, saved, uploaded

BESIDE = ".new.surgery-tmp-0123abcd"


@pytest.mark.parametrize("state", ["living", "elsewhere", "dead"])
@pytest.mark.parametrize("built", ["new", f"{BESIDE}/new"], ids=["plain", "resume"])
def test_who_reads_it_is_told_to_wait_before_anything_else(
    service, tmp_path, surgery, built, state
):
    uploaded(service, saved(tmp_path / "ck"), f"{service.root}/{built}")
    service.remove(f"{built}/{MARK}")
    service.remove(f"{built}/_CHECKPOINT_METADATA")
    owner = msgspec.to_builtins(Owner.here())
    owner |= {"elsewhere": {"machine": "feedbeef"}, "dead": {"started": "1"}}.get(state, {})
    said = {"run": "x", "builds": f"{service.root}/{built.partition('/')[0]}", **owner}
    service.put("bkt", ".new.surgery-tmp-lock", json.dumps(said).encode())

    for named in ("new", built):
        refused = surgery("inspect", f"{service.root}/{named}")
        is_there = named == built
        new = f"{service.root}/new"
        if state == "dead":
            assert "wait" not in refused.err
            assert refused.code == (3 if is_there else 2)
            continue
        what, why, fix = refused.err.splitlines()[:3]
        assert refused.code == 3, refused.err
        assert f"another run is writing to '{new}'" in what
        assert f"process {owner['pid']} on " in why
        assert fix.strip().startswith("wait for it")
        if state == "living":
            assert "rescue" not in refused.err
        else:
            assert f"if it is over, `surgery clean {new} --stale`" in refused.err
            assert (f"`surgery rescue {service.root}/{built}`" in refused.err) == is_there
