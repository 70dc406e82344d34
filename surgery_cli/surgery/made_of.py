"""Which leaves of a checkpoint were made of another that stands there unchanged: what its record says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surgery_cli.proof.on_record import read_record
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath


def leaves_of(origin: Any, result: Checkpoint) -> Callable[[LeafPath, LeafPath], bool]:
    """Whether a leaf of ``result``, at the first path, is one of ``origin`` below the second, as it was or edited.

    True of none if the last run was of another checkpoint than ``origin``, or of what that was once.
    """
    record = read_record(result) if isinstance(origin, Checkpoint) else None
    if record is None or record.source_fingerprint != origin.fingerprint:
        return lambda path, node: False
    # of what a run with donors computed, the record does not say whose values are in it
    came = {
        leaf.path: "" if record.donors and leaf.operations else leaf.from_ for leaf in record.leaves
    }
    fronts = ("", *(f"{item}/" for item in result.items))

    def is_made_of_it(path: LeafPath, node: LeafPath) -> bool:
        said = next((came[text] for f in fronts if (text := f + path.text) in came), path.text)
        return any(f"{said or ''}/".startswith(f"{front}{node.text}/") for front in fronts)

    return is_made_of_it
