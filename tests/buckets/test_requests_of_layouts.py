"""A donor of one layout for a source of another: what is told of requests, against the logs of the servers."""

import numpy as np
import pytest
from flax.serialization import to_bytes
from safetensors.numpy import save_file

from surgery_cli import surgery as use_cases
from surgery_cli.planning import plan_from_document
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.test_requests import (
    FEWER_READS,
    MORE_READS,
    NEW_VALUES,
    OTHERS,
    SMALL,
    anew,
    logged,
)

__all__ = ["anew"]

HOW = {
    "ocdbt": {},
    "ocdbt, zarr3": {"use_zarr3": True},
    "per leaf": {"use_ocdbt": False},
    "per leaf, zarr3": {"use_ocdbt": False, "use_zarr3": True},
}
FILES = ["safetensors", "msgpack"]
LAYOUTS = [*HOW, *FILES]
PLACES = {
    "in one bucket": ("gs", "gs", "gs"),
    "to a disk": ("gs", "gs", "disk"),
    "from a disk to one": ("gs", "disk", "s3"),
    "from one to a disk": ("disk", "gs", "disk"),
    "from one service to the other": ("s3", "gs", "s3"),
}
"""Where the source is, the donor, and the result."""


def state(seed):
    draw = np.random.default_rng(seed).standard_normal
    shapes = {"huge": (1200, 1000), "large": (1000, 400), "s0": (64, 32), "s1": (64, 32)}
    params = {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}
    mirrors = {
        "mu": {k: v * 0.1 for k, v in params.items()},
        "nu": {k: v * v for k, v in params.items()},
    }
    return {"params": params, "opt_state": {**mirrors, "count": np.int32(3)}}


def leaves(tree, front=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{front}{key}/")
        else:
            yield front + key, np.asarray(value)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A source and a donor of each layout."""
    folder = tmp_path_factory.mktemp("made")
    for seed, who in enumerate(("source", "donor")):
        for layout, how in HOW.items():
            saved(folder / f"{who} {layout}", state(seed), **how)
        (folder / f"{who} msgpack").write_bytes(to_bytes(state(seed)))
        save_file(dict(leaves(state(seed))), folder / f"{who} safetensors")
    return folder


def put(server, made, who, layout, tmp_path):
    here = made / f"{who} {layout}"
    if layout in HOW:
        return str(here) if server is None else uploaded(server, here, f"{server.root}/runs/{who}")
    there = tmp_path / f"{who}.{layout}"
    there.write_bytes(here.read_bytes())
    return str(there) if server is None else server.upload(there, f"{server.root}/{who}.{layout}")


@pytest.mark.covers(2)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("optimizer", ["keep", None])
@pytest.mark.parametrize("at", ["params/large", "params/**"])
@pytest.mark.parametrize("donor", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_requests_of_a_donor_of_another_layout(
    bucket, s3, made, tmp_path, anew, source, donor, at, optimizer, places
):
    """What passed through this machine from one layout into the other was not counted at all, nor what is measured."""
    servers = {"gs": bucket, "s3": s3, "disk": None}
    own, other, to = PLACES[places]
    there = put(servers[own], made, "source", source, tmp_path)
    sources = {"donor": put(servers[other], made, "donor", donor, tmp_path)}
    target = str(tmp_path / "new") if to == "disk" else f"{to}://bkt/new"
    target += ".msgpack" if source == "msgpack" else ""
    edit = {"op": "replace", "at": at, "with": "donor"}
    if optimizer:
        edit["optimizer"] = optimizer
    plan = plan_from_document({"sources": sources, "edits": [edit]})
    anew()
    before = use_cases.plan(there, plan, destination=target)
    anew()
    for server in (bucket, s3):
        server.log.clear()
    after = use_cases.apply(there, target, plan)
    told, done = before.requests, after.requests
    logs = [logged(server) for server in (bucket, s3)]
    seen = {
        kind: np.sum([getattr(log, kind) for log in logs], axis=0)
        for kind in ("read", "written", "copied")
    }
    for kind, (requests, _) in seen.items():
        assert getattr(done, kind).requests == requests, kind
    assert told.written.requests == seen["written"][0]
    assert told.copied.requests == seen["copied"][0]
    assert -MORE_READS <= told.read.requests - seen["read"][0] <= FEWER_READS
    assert abs(told.other - done.other) <= OTHERS
    for kind in ("read", "written"):
        count = seen[kind][1]
        assert abs(getattr(told, kind).bytes - count) <= NEW_VALUES * count + SMALL, kind
    for of in ("bytes_read", "bytes_written", "bytes_linked", "bytes_copied"):
        assert getattr(before, of) == getattr(after, of), of
