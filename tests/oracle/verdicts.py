"""Slot by slot: is what surgery made of a state what training would have made of it, and if not, does it say so?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from surgery_cli.draft.slots import Slot
from surgery_cli.errors import SurgeryError
from surgery_cli.tree.paths import LeafPath
from tests.oracle.cases import Case
from tests.oracle.editing import Edited, edited, values_of
from tests.oracle.table import KEPT, REFUSED, RIGHT, SAID, UNJUDGED, UNSAID
from tests.oracle.training import Trained, both_trainings

_ORDER: Final = (UNJUDGED, RIGHT, REFUSED, KEPT, SAID, UNSAID)
TOLERANCE: Final = 1e-2
TOLERANCE_EXACT: Final = 1e-4
"""Where no epsilon stands between a gradient and a slot."""


class Verdict(NamedTuple):
    """Of one field of one state, the worst of its slots; ``error`` is relative to the slot's largest value."""

    case: Case
    node: str
    name: str
    verdict: str
    error: float = 0.0

    @property
    def text(self) -> str:
        return f"{self.case}: {self.name} at '{self.node}' is off by {self.error:.1g}"


def judged(case: Case) -> list[Verdict]:
    """Train, edit and compare."""
    done = both_trainings(case)
    return compared(case, done, lambda: edited(case, done))


def judged_together(cases: Sequence[Case]) -> list[Verdict]:
    """The verdicts of several cases: those of one training cost little more than one of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [one for case in cases for one in judged(case)]


def compared(case: Case, done: Trained, edit: Callable[[], Edited]) -> list[Verdict]:
    """The verdict of every field of the state."""
    try:
        after = edit()
    except SurgeryError as error:
        return [Verdict(case, str(error.problems[0].path), "", REFUSED)]
    wanted = values_of({"params": done.wanted_params, "opt_state": done.wanted})
    start = values_of({"params": done.params, "opt_state": done.state})
    limit = TOLERANCE_EXACT if done.optimizer.is_exact else TOLERANCE
    found: dict[tuple[str, str], Verdict] = {}
    for path, slot in after.slots.items():
        if not slot.in_optimizer:
            continue
        truth = wanted[path].astype(np.float64)
        if (
            slot.name == "z"
        ):  # the averaged weights, (y - (1 - b1) z) / b1, follow only if z is multiplied like y
            truth = after_factor(path, slot, start, done)
        error = distance(after.values[path], truth)
        one = Verdict(
            case, str(slot.node), slot.name, verdict(path, slot, error, limit, after), error
        )
        key = (one.node, one.name)
        if key not in found or _rank(one) > _rank(found[key]):
            found[key] = one
    return list(found.values())


def after_factor(
    path: LeafPath, slot: Slot, start: dict[LeafPath, np.ndarray], done: Trained
) -> np.ndarray:
    """The slot times the factor of its param."""
    layer, leaf = slot.param[-2:]
    return start[path].astype(np.float64) * done.by[layer][leaf]


def distance(found: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference, relative to the slot's largest value; NaN where the training did not stay finite."""
    if not np.isfinite(truth).all():
        return np.nan
    apart = np.abs(found.astype(np.float64) - truth).max(initial=0.0)
    return float(apart / (np.abs(truth).max(initial=0.0) or 1.0)) if apart else 0.0


def verdict(path: LeafPath, slot: Slot, error: float, limit: float, after: Edited) -> str:
    """One slot's."""
    if np.isnan(error):
        return UNJUDGED
    if error <= limit:
        return RIGHT
    nodes = {slot.node}
    if not after.policies[path]:
        # what no edit touched is off only where all params hang together, by a clip of the global norm: the note of a
        # state that was edited says it, as those of the two optimizers that stand behind it in muon
        nodes |= {other.node for place, other in after.slots.items() if after.policies[place]}
    is_said = any(says(note, node) for note in after.notes for node in nodes)
    if not is_said:
        return UNSAID
    return KEPT if after.policies[path] == "keep" else SAID


def says(note: str, node: LeafPath) -> bool:
    """True if a note names the state of the field at ``node``, or it, and not only the word that was taken for it."""
    if note.startswith("`optimizer_kind: ") and " is used for " in note:
        return False
    return f"'{node.parent or node}'" in note or f"'{node}'" in note


def _rank(one: Verdict) -> tuple[int, float]:
    return _ORDER.index(one.verdict), one.error
