"""What is read to compare the optimizer states of a checkpoint and its donors: step counts, and what tells a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from surgery_cli.draft import SOURCE, Draft
from surgery_cli.engine.reading import read_scalar
from surgery_cli.optimizer.agreement import Clocked
from surgery_cli.optimizer.clocks import NEEDS_SLOTS, has_restarted
from surgery_cli.optimizer.slots import Slot
from surgery_cli.optimizer.survey import OptimizerSurvey
from surgery_cli.plan import Plan
from surgery_cli.store.checkpoint import Checkpoint
from surgery_cli.surgery.contract import Script
from surgery_cli.surgery.optimizers import Look, survey_state
from surgery_cli.surgery.records import checked
from surgery_cli.tree.paths import LeafPath


def _goes_on(slot: Slot, draft: Draft) -> bool:
    """True for a slot that keeps values of the checkpoint itself."""
    recipe = draft.leaves[slot.path]
    is_own = recipe.origin is not None and recipe.origin.source == SOURCE
    return is_own and not has_restarted(slot, draft)


class Comparison:
    """The state of the checkpoint that is edited beside those of donors, as far as an edit asks for it."""

    def __init__(
        self, checkpoint: Checkpoint, plan: Plan, params: str | None, script: Script | None
    ) -> None:
        self._checkpoint, self._plan, self._params, self._script = checkpoint, plan, params, script
        self._numbers: dict[tuple[int, LeafPath], float | None] = {}
        self._number_bytes = 0
        self._looks: list[Look] = []

    def survey(self, source: Any) -> OptimizerSurvey:
        """The survey of a donor, or of the checkpoint itself, in which values tell what metadata leaves open."""
        plan, params, script = self._plan, self._params, self._script
        if source is not self._checkpoint:  # what the user says is said of the checkpoint
            plan = msgspec.structs.replace(plan, params=None, optimizer_kind=None, slots={})
            params = script = None
        found, looks = survey_state(source, plan, params, script, needs_powers=True)
        name = "" if source is self._checkpoint else f"'{source.address}': "
        self._looks += [
            Look(name + look.sentence if look.sentence else "", look.bytes)
            for look in looks
            if look.bytes
        ]
        return found

    def number(self, source: Any, path: LeafPath) -> float | None:
        """The value of a leaf with one element, read once; None if it is no number."""
        key = id(source), path
        if key not in self._numbers:
            value = read_scalar(checked(source), path)
            self._number_bytes += source.tree[path].bytes
            self._numbers[key] = float(value) if isinstance(value, int | float) else None
        return self._numbers[key]

    def look_at_donors_clocks(self, draft: Draft, sources: Mapping[str, Any]) -> list[Look]:
        """What becomes of slots that go on under a clock which was itself taken from a donor."""
        found = []
        for path, recipe in draft.leaves.items():
            origin, clock = recipe.origin, draft.clocks.get(path)
            if origin is None or origin.source == SOURCE or clock is None or recipe.steps:
                continue
            own = [s for s in draft.slots.values() if path in s.clocks and _goes_on(s, draft)]
            if clock.drives not in NEEDS_SLOTS or not own:
                continue
            ours = self.number(sources[origin.source], origin.path)
            clocked = Clocked(path, clock.drives, self.number(self._checkpoint, clock.path), ours)
            if not clocked.agrees:
                count = f"{len(own)} slot{'s' * (len(own) > 1)}"
                said = f"'{path}' comes from '{origin.source}', and {count} that it drives do not: {clocked.shifted}"
                found.append(Look(said, 0))
        return found

    @property
    def looks(self) -> list[Look]:
        """What was read, for the preview."""
        if not self._numbers:
            return self._looks
        count = len(self._numbers)
        said = f"read {count} step {'count' if count == 1 else 'counts'}, to compare the clocks of both"
        return [*self._looks, Look(said, self._number_bytes)]
