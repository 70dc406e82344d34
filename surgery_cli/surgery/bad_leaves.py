"""Which leaves hold values with which something is wrong."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from surgery_cli import reports
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.proof.soundness import not_finite, out_of_shape
from surgery_cli.rules.finite import may_be_infinite
from surgery_cli.tree.paths import LeafPath


def tell_bad(
    rows: Sequence[reports.LeafRow], paths: Sequence[LeafPath], surveyed: OptimizerSurvey
) -> None:
    """Let the rows of leaves with whose values something is wrong say what.

    In the state of an optimizer all zeros are a start, and so are infinities that it keeps beside its slots.
    """
    states = {slot.whole_state for slot in surveyed.slots.values() if slot.in_optimizer}
    for row, path in zip(rows, paths, strict=True):
        row.bad = _ills(row, path, surveyed, states)


def bad_ones(
    rows: Sequence[reports.LeafRow], paths: Sequence[LeafPath]
) -> tuple[list[reports.LeafRow], list[LeafPath]]:
    """The rows, and their paths, of leaves with whose values something is wrong."""
    bad = [(row, path) for row, path in zip(rows, paths, strict=True) if row.bad]
    return [row for row, _ in bad], [path for _, path in bad]


def _ills(
    row: reports.LeafRow,
    path: LeafPath,
    surveyed: OptimizerSurvey,
    states: Collection[LeafPath],
) -> list[str]:
    is_fine = may_be_infinite(path, row.shape, surveyed.slots, states)
    if row.statistics is None:
        is_number = isinstance(row.value, float) and not math.isfinite(row.value)
        return [str(row.value)] if is_number and not (is_fine and row.value == math.inf) else []
    found = not_finite(row.statistics, may_be_infinite=is_fine)
    if not any(map(path.is_below, states)):
        found += out_of_shape(row.shape, row.dtype, row.statistics)
    return found
