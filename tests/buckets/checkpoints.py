"""Checkpoints in the bucket of the tests."""

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import destination_of
from surgery_cli.store.locate.location import locate
from surgery_cli.store.write.inventory import take_inventory, versions_of, without_marks
from surgery_cli.store.write.many_objects import objects_at

SAMPLES = Path(__file__).resolve().parents[2] / "sample_checkpoints"
TREE = {
    "params": {"w": np.arange(12, dtype=np.float32), "b": np.ones((3, 2), np.float32)},
    "opt_state": {"count": np.int32(3)},
}
RESCALED = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 2.0})])
MARK = "commit_success.txt"


def mark(server, address):
    server.put("bkt", f"{address.removeprefix(f'{server.root}/')}/{MARK}", b"")


def uploaded(server, folder, address):
    """What Orbax would have saved there: all files, and its mark in every step."""
    server.upload(folder, address)
    location = locate(str(folder))
    if location.shape == "root":
        for name in {path.name for path in folder.iterdir() if path.is_dir()}:
            mark(server, f"{address}/{name}")
    elif location.shape != "file":
        mark(server, address)
    return address


def saved(folder, tree=TREE, **how):
    with ocp.PyTreeCheckpointer(**how) as checkpointer:
        checkpointer.save(folder, tree)
    return folder


def inventoried(built):
    """What stands in a folder of a run, as the run writes it down before it begins to replace."""
    filesystem.forget(built)
    destination = destination_of(built)
    stood = versions_of(destination.parent, objects_at(destination)) | {"gone": 1}
    take_inventory(built, without_marks(objects_at(built)), stood)
    filesystem.forget(built)


def below(service, begin="new/"):
    """What stands below a name in the bucket of the tests; may be asked within the server."""
    return {name: service.content(name) for name in service.names(begin)}
