"""Which leaves hold values with which something is wrong."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from surgery_cli import reports
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.proof.soundness import not_finite, out_of_shape
from surgery_cli.rules.finite import STARTS_INFINITE
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


def tell_bad(
    rows: Sequence[reports.LeafRow], paths: Sequence[LeafPath], surveyed: OptimizerSurvey
) -> list[Note]:
    """Let the rows of leaves with whose values something is wrong say what.

    In the state of an optimizer all zeros are a start, and so are infinities in numbers that start so:
    what is said of these is returned.
    """
    states = {slot.whole_state for slot in surveyed.slots.values() if slot.in_optimizer}
    for row, path in zip(rows, paths, strict=True):
        row.bad = _ills(row, path, surveyed, states)
    through = [
        str(path)
        for row, path in zip(rows, paths, strict=True)
        if path in surveyed.infinite and not row.bad and _is_infinite(row)
    ]
    if not through:
        return []
    said = f"{counted(len(through), 'leaf', 'leaves')} {STARTS_INFINITE}: {quoted(through, 6)}"
    return [Remark(DocsPage.CHECKS_IN_PLANS, said)]


def bad_ones(
    rows: Sequence[reports.LeafRow], paths: Sequence[LeafPath]
) -> tuple[list[reports.LeafRow], list[LeafPath]]:
    """The rows, and their paths, of leaves with whose values something is wrong."""
    bad = [(row, path) for row, path in zip(rows, paths, strict=True) if row.bad]
    return [row for row, _ in bad], [path for _, path in bad]


def _is_infinite(row: reports.LeafRow) -> bool:
    if row.statistics is not None:
        return row.statistics.non_finite > 0
    return isinstance(row.value, float) and math.isinf(row.value)


def _ills(
    row: reports.LeafRow,
    path: LeafPath,
    surveyed: OptimizerSurvey,
    states: Collection[LeafPath],
) -> list[str]:
    is_fine = path in surveyed.infinite
    if row.statistics is None:
        is_number = isinstance(row.value, float) and not math.isfinite(row.value)
        return [str(row.value)] if is_number and not (is_fine and row.value == math.inf) else []
    found = not_finite(row.statistics, may_be_infinite=is_fine)
    if not any(map(path.is_below, states)):
        roots = surveyed.params_roots
        is_param = not roots or path in roots or any(map(path.is_below, roots))
        found += out_of_shape(row.shape, row.dtype, row.statistics, is_param=is_param)
    return found
