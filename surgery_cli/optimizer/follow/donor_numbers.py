"""Numbers on disk by which all slots of a state go, here and in a donor: settings, running sums, estimates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.optimizer.follow.clocks import filled_with
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath

RATES: Final = frozenset({"learning_rate", "learning rate", "learning rate factor"})
"""How large steps are: what every script says, and optax has no default for."""

AFTERWARDS: Final = RATES | {"weight_decay", "weight_decay_rate", "eps", "eps_root"}
"""Settings that an update meets after it has passed the slots: they change steps, not what slots hold."""

BEFOREHAND: Final = frozenset({"initial_accumulator_value", "initial_scale", "reps_rel"})
"""Settings that `init` alone reads: what slots hold by now does not go by them."""

_MOST: Final = 1.1
"""How far apart numbers may be, as a factor, under which the steps are those of the donor within a tenth."""

_SAME: Final = 1 + 1e-6
"""The same for settings, such as decays, of which the next steps depend in other ways."""


class Shared(msgspec.Struct, frozen=True):
    """A number here and in a donor; None where it is not one number, or nobody can read it.

    ``name`` is what it is as a setting, if it is one.
    """

    path: LeafPath
    name: str
    theirs: float | None
    ours: float | None

    @property
    def agrees(self) -> bool:
        """True if slots of the donor mean here what they mean there."""
        return self.name in AFTERWARDS or self._is_within(_SAME if self.name else _MOST)

    @property
    def changes_steps(self) -> bool:
        """True if the slots mean the same, and what is made of them is not the same."""
        return self.name in AFTERWARDS and not self._is_within(_MOST)

    def _is_within(self, most: float) -> bool:
        if self.theirs is None or self.ours is None:
            return False
        small, large = sorted((abs(self.theirs), abs(self.ours)))
        return self.theirs == self.ours or (self.theirs * self.ours > 0 and large <= most * small)

    def sentence(self) -> str:
        """Both numbers in words."""
        if self.theirs is None or self.ours is None:
            return f"the values of '{self.path}', by which they go, are not compared"
        they_go = "" if self.name in AFTERWARDS else ", by which they go,"
        return f"'{self.path}'{they_go} is {self.theirs:.4g} there and {self.ours:.4g} here"


def shared_numbers(
    slot: Slot, other: Slot, donor: str, draft: Draft, scene: States
) -> Iterator[Shared]:
    """The numbers by which a slot goes, beside those of its counterpart in the donor."""
    origin = draft.leaves[slot.path].home
    if origin is None or origin.source != SOURCE:
        return
    here, there = scene.survey_of(SOURCE), scene.survey_of(donor)
    theirs = dict(_numbers_of(other.node, there))
    for name, path in _numbers_of(here.slots.get(origin.path, slot).node, here):
        recipe = draft.leaves.get(draft.standing(path))
        if name not in theirs or recipe is None:
            continue
        said = here.hyperparams.get(path, "")
        there_stored = number_of(LeafRef(donor, theirs[name]), scene)
        yield Shared(path, said, there_stored, number_here(recipe, scene))


def _numbers_of(node: LeafPath, found: OptimizerSurvey) -> Iterator[tuple[LeafPath, LeafPath]]:
    """The numbers by which the slots of a node go: their names below the nodes that keep them, and their paths."""
    for path, owner in found.shared.items():
        if node.is_below(owner) and found.hyperparams.get(path) not in BEFOREHAND:
            yield LeafPath(path[len(owner) :]), path


def number_here(output: Output, scene: States) -> float | None:
    """What a leaf of the checkpoint that is edited holds after the edits so far, if it is one number."""
    filled = filled_with(output)
    if filled is None and output.home is not None and not output.edits:
        return number_of(output.home, scene)
    return filled


def number_of(ref: LeafRef, scene: States) -> float | None:
    """What a stored leaf holds, if it is one number."""
    source = scene.source if ref.source == SOURCE else scene.open(ref.source)[1]
    return scene.number(ref) if source.tree[ref.path].size == 1 else None
