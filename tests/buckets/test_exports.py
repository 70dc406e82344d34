"""Exports to buckets: streamed as they are made, there whole or not at all, and as the preview says."""

import json

import numpy as np
import pytest
from safetensors.numpy import load

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, SurgeryError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.test_requests import TREE, anew, hold

__all__ = ["anew"]

SHARDS = plan_of([], output=Export(format="safetensors", shard="2MB"))
NAMES = {"msgpack": "new.msgpack", "npz": "new.npz", "safetensors": "new.safetensors"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("exports") / "ck", TREE)


def stands(service, begin):
    return {name.removeprefix("bkt/") for name in service.names() if begin in name}


def content(address):
    return filesystem.read(filesystem.system_of(address).real(address))


def test_shards_and_index_come_to_every_service(service, here):
    report = surgery.apply(str(here), f"{service.root}/runs/new", SHARDS)
    names = [file.name for file in report.exported.files]
    assert names[-1] == "model.safetensors.index.json"
    index = json.loads(content(f"{service.root}/runs/new/{names[-1]}"))["weight_map"]
    arrays = {}
    for name in names[:-1]:
        arrays |= load(content(f"{service.root}/runs/new/{name}"))
    assert arrays.keys() == index.keys()
    np.testing.assert_array_equal(arrays["params.large"], TREE["params"]["large"])
    assert surgery.verify(f"{service.root}/runs/new").agrees


@pytest.mark.parametrize("form", NAMES)
def test_a_file_is_the_one_that_a_disk_gets(bucket, here, tmp_path, form):
    plan = plan_of([], output=Export(format=form))
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    surgery.apply(there, f"gs://bkt/{NAMES[form]}", plan, options=Options(memory_bytes=2 << 20))
    surgery.apply(str(here), str(tmp_path / NAMES[form]), plan)
    assert content(f"gs://bkt/{NAMES[form]}") == (tmp_path / NAMES[form]).read_bytes()
    assert surgery.verify(f"gs://bkt/{NAMES[form]}").agrees


def test_what_fails_leaves_nothing(service, here):
    """The values show it, once a file has been sent and the next is on its way."""
    before = set(service.names())
    overflow = plan_of([operation_from_options("rescale", {"at": "params/medium", "by": 3e38})])
    plan = plan_of(overflow.edits, output=SHARDS.output)
    options = Options(memory_bytes=2 << 20)
    with pytest.raises(SurgeryError, match="new non-finite values"):
        surgery.apply(str(here), f"{service.root}/runs/new", plan, options=options)
    assert any(request.kind == "write" for request in service.log)
    assert set(service.names()) == before


def test_what_is_being_written_is_not_read(service, here):
    surgery.apply(str(here), f"{service.root}/runs/new", SHARDS)
    service.put("bkt", "runs/.new.surgery-tmp-lock", b"{}")
    filesystem.forget(f"{service.root}/runs")
    with pytest.raises(CheckpointError, match="is writing to"):
        surgery.inspect(f"{service.root}/runs/new")


@pytest.mark.parametrize("form", NAMES)
def test_requests_are_as_the_preview_says(bucket, here, anew, form):
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([], output=Export(format=form))
    hold(bucket, anew, plan, there, f"gs://bkt/runs/{NAMES[form]}")


def test_requests_of_shards_are_as_the_preview_says(service, here, anew):
    hold(service, anew, SHARDS, str(here), f"{service.root}/runs/new")
