"""Runs on record that still tell of a checkpoint: those that no later one has undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from surgery_cli.proof.record_parts import Run


def standing(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs, the latest first, without those that the next one has undone, and without that."""
    left = deque(runs)
    while left:
        run = left.popleft()
        if left and _undoes(run, left[0]):
            left.popleft()
        else:
            yield run


def is_undone_by(run: Run, plan: Mapping[str, Any]) -> bool:
    """True if a plan, as a document, is the one that undoes a run: with its layout, where the run gave it another."""
    edits, is_laid_out = (run.inverse or {}).get("edits", []), bool(run.plan.get("reshard"))
    if not (edits or is_laid_out) or edits != plan.get("edits", []):
        return False
    like = (plan.get("reshard") or {}).get("like")
    return not is_laid_out or plan.get("fingerprints", {}).get(like) == run.source_fingerprint


def _undoes(later: Run, run: Run) -> bool:
    """True if a run was about the same trees as the one before it, by the plan that undoes that."""
    return is_undone_by(run, later.plan) and run.edited_trees == later.edited_trees
