"""Where leaves stood before earlier edits, as the record of a checkpoint tells: a rename tells its way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surgery_cli.errors import CheckpointError
from surgery_cli.proof.records import read_record
from surgery_cli.store.open.checkpoint import Checkpoint


def former_paths(
    checkpoint: Checkpoint, moved: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """The printed path of every leaf that was moved, before each earlier run, by its path now; the latest run first.

    ``moved`` says where the leaves of a draft stand in the checkpoint. A record that cannot be read tells nothing.
    """
    try:
        record = read_record(checkpoint)
    except CheckpointError:
        record = None
    runs: list[Sequence[Mapping[str, Any]]] = []
    if record is not None:
        earlier = [entry.get("leaves", []) for entry in record.history]
        runs = [record.leaves, *reversed(earlier)]
    now = dict(moved) if moved is not None else {}
    found = [_differing(now)] if moved is not None else []
    for leaves in runs:
        before = {str(leaf["path"]): str(leaf["from"]) for leaf in leaves if leaf.get("from")}
        now = {path: before.get(old, old) for path, old in now.items()} | {
            path: old
            for path, old in before.items()
            if path not in now and path not in now.values()
        }
        found.append(_differing(now))
    return found


def _differing(paths: Mapping[str, str]) -> dict[str, str]:
    return {path: old for path, old in paths.items() if path != old}
