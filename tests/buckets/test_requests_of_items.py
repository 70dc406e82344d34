"""Items that come, go or move: previews of requests hold against the log of the server, as for edits of leaves."""

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from tests.buckets.checkpoints import MARK, saved, uploaded
from tests.buckets.test_requests import WAYS, anew, logged

__all__ = ["anew"]

PARAMS = {"w": np.ones((64, 32), np.float32), "b": np.zeros(8, np.float32)}
EDITS = {
    "a subtree becomes an item": [("extract-item", {"at": "state/params"})],
    "a subtree stays and is an item": [("extract-item", {"at": "state/params", "keep": True})],
    "an item goes": [("delete", {"at": "ema"})],
    "an item moves into another": [("insert-item", {"at": "state/ema", "from": "ema"})],
    "an item comes": [("insert-item", {"as": "weights", "with": "OTHER"})],
    "one comes and one goes": [
        ("extract-item", {"at": "state/params"}),
        ("delete", {"at": "ema"}),
    ],
    "a copy between items": [("copy", {"at": "state/params", "to": "ema/copied"})],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with two trees and a JSON item in its steps, and a tree by itself."""
    folder = tmp_path_factory.mktemp("items")
    state = {"params": PARAMS, "opt_state": optax.adam(1e-3).init(PARAMS)}
    with ocp.CheckpointManager(folder / "run") as manager:
        for step in (1, 2):
            items = {
                "state": ocp.args.StandardSave(state),
                "ema": ocp.args.StandardSave(PARAMS),
                "cursor": ocp.args.JsonSave({"line": 3}),
            }
            manager.save(step, args=ocp.args.Composite(**items))
    saved(folder / "other", {"kernel": np.ones((16, 16), np.float32)})
    return folder


OTHERS = 12
"""So many lists and looks more or fewer than told: where small files lie is known from what was seen before."""


def hold(server, anew, plan, source, destination, **options):
    """Hold a preview against the log of the server: writes and copies are told exactly."""
    given = Options(**options)
    anew()
    told = use_cases.plan(source, plan, destination=destination, options=given).requests
    anew()
    server.log.clear()
    use_cases.apply(source, destination, plan, options=given)
    seen = logged(server)
    assert told.written.requests == seen.written[0]
    assert told.copied.requests == seen.copied[0]
    assert abs(told.other - seen.other[0]) <= OTHERS + (seen.written[0] * (server.scheme == "s3"))
    assert abs(told.read.requests - seen.read[0]) <= OTHERS


def marked(server, run, address):
    """As a manager saves there: a mark in each item, and one in each step."""
    uploaded(server, run / "run", address)
    name = address.removeprefix(f"{server.root}/")
    for step in (1, 2):
        for item in ("state", "ema", "cursor"):
            server.put("bkt", f"{name}/{step}/{item}/{MARK}", b"")
    return address


def plan_for(server, run, edit):
    other = uploaded(server, run / "other", f"{server.root}/other")
    entries = [
        (kind, {key: other if value == "OTHER" else value for key, value in fields.items()})
        for kind, fields in EDITS[edit]
    ]
    return plan_of([operation_from_options(kind, fields) for kind, fields in entries])


@pytest.mark.parametrize("edit", EDITS)
def test_previews_of_items_hold(service, run, tmp_path, anew, edit):
    there = marked(service, run, f"{service.root}/runs/ck")
    plan = plan_for(service, run, edit)
    hold(service, anew, plan, there, f"{service.root}/runs/new")
    hold(service, anew, plan, there, str(tmp_path / "new"))
    hold(service, anew, plan, str(run / "run"), f"{service.root}/from-here")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("edit", EDITS)
def test_previews_of_items_hold_where_a_run_is_built_beside(bucket, run, anew, edit, way):
    there = marked(bucket, run, "gs://bkt/runs/ck")
    if "force" in way:
        marked(bucket, run, "gs://bkt/runs/new")
    plan = plan_for(bucket, run, edit)
    hold(bucket, anew, plan, there, "gs://bkt/runs/new", **dict.fromkeys(way, True))
