"""Which leaves of a checkpoint were made of another that stands there unchanged: what its record says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surgery_cli.proof.on_record import read_record
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath


def leaves_of(origin: Any, result: Checkpoint) -> Callable[[LeafPath], bool]:
    """Whether a leaf of ``result`` is that of ``origin`` at the same path, as it was or edited.

    True of none if the last run was of another checkpoint than ``origin``, or of what that was once.
    """
    record = read_record(result) if isinstance(origin, Checkpoint) else None
    if record is None or record.source_fingerprint != origin.fingerprint:
        return lambda path: False
    # of what a run with donors computed, the record does not say whose values are in it
    came = {leaf.path for leaf in record.leaves if leaf.from_ != leaf.path or record.donors}
    fronts = ("", *(f"{item}/" for item in result.items))

    def is_made_of_it(path: LeafPath) -> bool:
        return path in origin.tree and not any(front + path.text in came for front in fronts)

    return is_made_of_it
