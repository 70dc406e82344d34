"""Exports to buckets, and what they replace there: previews of requests hold against the log of the server."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from surgery_cli import surgery as use_cases
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from tests.buckets.checkpoints import saved
from tests.buckets.test_requests import FEWER_READS, MORE_READS, OTHERS, TREE, anew, hold, logged

__all__ = ["anew"]

LARGE = {"w": np.random.default_rng(1).standard_normal(5 << 20).astype(np.float32)}
"""Its file is written piece by piece."""
FORMS = {
    "one file": ("safetensors", {}, "new.safetensors"),
    "an archive": ("npz", {}, "new.npz"),
    "packed": ("msgpack", {}, "new.msgpack"),
    "shards": ("safetensors", {"shard": "2MB"}, "new"),
    "t5x": ("t5x", {}, "new"),
}
OLD = ("nothing", "the same", "other shards", "a checkpoint")
"""What stands at the destination before."""
CASES = [
    (form, old)
    for form, (_, _, name) in FORMS.items()
    for old in OLD
    if old != "other shards" or "." not in name  # a file's name is no folder's
]
ROOTS = [("params", "target"), ("step", "state/step")]
"""What T5X knows at the root of a tree."""
KINDS = ("read", "written", "copied")


def plan_for(form):
    kind, fields, _ = FORMS[form]
    edits = [operation_from_options("rename", {"at": a, "to": b}) for a, b in ROOTS]
    return plan_of(edits if kind == "t5x" else [], output=Export(format=kind, **fields))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    saved(folder / "ck", TREE)
    saved(folder / "large", LARGE)
    return folder


def put_there(here, old, form, destination):
    shards = plan_of([], output=Export(format="safetensors", shard="1MB"))
    plans = {"the same": plan_for(form), "other shards": shards, "a checkpoint": plan_of([])}
    if old in plans:
        use_cases.apply(str(here / "ck"), destination, plans[old])


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize(("form", "old"), CASES)
def test_previews_of_exports_hold_with_force(service, here, anew, form, old):
    """All that is built beside its place was left out of the copies, and so was its inventory of the writes."""
    destination = f"{service.root}/runs/{FORMS[form][2]}"
    put_there(here, old, form, destination)
    there = service.upload(here / "ck", f"{service.root}/ck")
    hold(service, anew, plan_for(form), there, destination, force=True)


@pytest.mark.parametrize("in_parts", [False, True])
def test_previews_of_large_exports_hold_with_force(service, here, anew, monkeypatch, in_parts):
    if in_parts:
        monkeypatch.setattr(AmazonS3, "largest", 6 << 20)
        monkeypatch.setattr(AmazonS3, "part", 5 << 20)
    destination = f"{service.root}/new.safetensors"
    for is_taken in (False, True):
        plan, source = plan_for("one file"), str(here / "large")
        told = hold(service, anew, plan, source, destination, force=True)
        assert (told.copied.bytes > LARGE["w"].nbytes) is is_taken


@pytest.mark.parametrize("form", FORMS)
def test_previews_of_exports_hold_with_a_seal(service, here, anew, form):
    destination = f"{service.root}/runs/{FORMS[form][2]}"
    hold(service, anew, plan_for(form), str(here / "ck"), destination, seal=True)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("source", ["disk", "gs", "s3"])
def test_previews_of_what_comes_along_hold(service, bucket, s3, tmp_path, anew, source, force):
    """Configurations beside weights are copied by the service that has both; they were told as if they were written."""
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": TREE["params"]["large"]}, folder / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}" * 200)
    servers = {"gs": bucket, "s3": s3}
    there = str(folder)
    if source != "disk":
        there = servers[source].upload(folder, f"{servers[source].root}/model")
    destination, plan = f"{service.root}/new", plan_for("shards")
    if force:
        use_cases.apply(there, destination, plan)
    anew()
    options = Options(force=force)
    told = use_cases.plan(there, plan, destination=destination, options=options).requests
    anew()
    for server in servers.values():
        server.log.clear()
    done = use_cases.apply(there, destination, plan, options=options).requests
    logs = [logged(server) for server in servers.values()]
    seen = {kind: sum(getattr(log, kind)[0] for log in logs) for kind in KINDS}
    assert {kind: getattr(done, kind).requests for kind in KINDS} == seen
    assert told.written.requests == done.written.requests
    assert told.copied.requests == done.copied.requests
    assert -MORE_READS <= told.read.requests - done.read.requests <= FEWER_READS
    assert abs(told.other - done.other) <= OTHERS
