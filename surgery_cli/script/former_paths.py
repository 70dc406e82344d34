"""Where leaves stood before earlier edits, as the record of a checkpoint tells: a rename tells its way back."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.store.open.checkpoint import Checkpoint


def former_paths(
    checkpoint: Checkpoint, moved: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """The printed path of every leaf that was moved, before each earlier run, by its path now; the latest run first.

    ``moved`` says where the leaves of a draft stand in the checkpoint. A record that cannot be read tells nothing.
    """
    try:
        record = read_record(checkpoint)
    except UnseenError:
        raise
    except CheckpointError:
        record = None
    now = dict(moved) if moved is not None else {}
    found = [_differing(now)] if moved is not None else []
    for run in runs_of(checkpoint, record) if record is not None else ():
        before = {leaf.path: leaf.from_ for leaf in run.leaves if leaf.from_}
        now = {path: before.get(old, old) for path, old in now.items()} | {
            path: old
            for path, old in before.items()
            if path not in now and path not in now.values()
        }
        found.append(_differing(now))
    return found


def _differing(paths: Mapping[str, str]) -> dict[str, str]:
    return {path: old for path, old in paths.items() if path != old}
