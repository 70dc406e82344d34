"""What is read to compare the optimizer states of a checkpoint and its donors: step counts, and what tells a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from surgery_cli.draft.assumptions import same_kind_as
from surgery_cli.draft.expression import is_computed, stored_in
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.optimizer.follow.clock_agreement import Clocked
from surgery_cli.optimizer.follow.clocks import NEEDS_SLOTS, has_restarted
from surgery_cli.optimizer.follow.decays import decays_tried
from surgery_cli.optimizer.follow.step_sizes import sizes_under_another_count
from surgery_cli.planning import Plan
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.arrived_states import as_it_stands, clocks_of_others, copies_of_others
from surgery_cli.surgery.clock_values import Numbers
from surgery_cli.surgery.made_of import leaves_of
from surgery_cli.surgery.optimizers import Look, survey_state
from surgery_cli.surgery.schedules_apart import schedules_apart
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

if TYPE_CHECKING:
    from surgery_cli.script.function import Script


def _goes_on(slot: Slot, draft: Draft) -> bool:
    """True for a slot that keeps values of the checkpoint itself."""
    recipe = draft.leaves[slot.path]
    is_own = recipe.home is not None and recipe.home.source == SOURCE
    return is_own and not has_restarted(slot, draft)


def _others_of(slot: Slot, draft: Draft) -> tuple[str, ...]:
    """The other checkpoints whose leaf of this path has a part in a slot that an edit names."""
    recipe = draft.leaves.get(slot.path)
    if recipe is None or recipe.policy == "donor" or not (recipe.edits or recipe.home):
        return ()
    refs = [part.ref for part in stored_in(recipe.recipe, beyond=is_computed)]
    refs += [recipe.home] if recipe.home is not None else []
    return tuple(
        dict.fromkeys(r.source for r in refs if r.source != SOURCE and r.path == slot.path)
    )


_GO_ON: Final = {
    "bias_correction": "are corrected for",
    "decay": "go on with the decay of",
    "first_step": "go on as after",
}
"""What slots do by a number of steps, by what their clock drives; of a cycle it is a place and no number."""


def _mixed(
    clock: LeafPath,
    drives: str,
    slots: Sequence[Slot],
    counts: Sequence[float | None],
    now: float | None,
    draft: Draft,
) -> str:
    """What is said of slots under a clock that stands at ``now`` in the result, where they have seen other counts."""
    known = sorted({count for count in counts if count is not None})
    there = ", ".join(f"{count:,.0f}" for count in known) or "what is not known"
    is_kept = draft.is_untouched(clock)
    then = "what is not known" if now is None else f"{now:,.0f}"
    said = f"{_slots(slots)} under '{clock}' come from where it stands at {there}, and it"
    said += f" {'stays at' if is_kept else 'becomes'} {then}: they {_GO_ON.get(drives, 'go on at')}"
    is_mean = bool(stored_in(draft.leaves[clock].recipe)[1:])  # as they are
    if drives not in _GO_ON:
        said += (
            " the mean of their places in the cycle"
            if is_mean
            else " another place of the cycle than where they come from"
        )
    elif is_mean:
        said += " that many steps, the mean of what their members have seen"
    else:
        said += " another number of steps than they have seen"
    if is_mean:
        return said
    others = {source for slot in draft.driven_by(clock) for source in _sources_of(slot, draft)}
    if len(others) == 1 and SOURCE not in others:  # the count of there is right for all of them
        return f"{said}; `replace` '{clock}' from there, too, in an edit behind"
    return f"{said}; name `params` alone, or `reset-optimizer` afterwards"


def _sources_of(slot: Slot, draft: Draft) -> list[str]:
    """The checkpoints that have a part in the values of a slot; of one that starts anew, none."""
    if has_restarted(slot, draft):
        return []
    parts = stored_in(draft.leaves[slot.path].recipe, beyond=is_computed)
    return list(dict.fromkeys(part.ref.source for part in parts))


def _slots(slots: Sequence[Slot]) -> str:
    return counted(len(slots), "slot")


class Comparison:
    """The state of the checkpoint that is edited beside those of donors, as far as an edit asks for it."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, script: Script | None) -> None:
        self._checkpoint, self._plan, self._script = checkpoint, plan, script
        self._numbers = Numbers()
        self._looks: list[Look] = []
        self._surveys: dict[int, OptimizerSurvey] = {}

    def survey(self, source: Any) -> OptimizerSurvey:
        """The survey of a donor, or of the checkpoint itself, in which values tell what metadata leaves open."""
        if id(source) not in self._surveys:
            self._surveys[id(source)] = self._surveyed(source)
        return self._surveys[id(source)]

    def _surveyed(self, source: Any) -> OptimizerSurvey:
        plan, script = self._plan, self._script
        if not isinstance(source, Checkpoint):  # a file of arrays
            return OptimizerSurvey()
        if source is not self._checkpoint:  # what the user says is said of the checkpoint
            plan = msgspec.structs.replace(plan, params=None, optimizer_kind=None, slots={})
            script = None
        found, looks = survey_state(source, plan, script, needs_powers=True)
        self._looks += [Look(None, look.bytes) for look in looks if look.bytes]
        return found

    def number(self, source: Any, path: LeafPath) -> float | None:
        """The value of a leaf with one element, read once; None if it is no number."""
        return self._numbers.stored(source, path)

    def looks_at(self, draft: Draft, sources: Mapping[str, Any]) -> list[Look]:
        """What is to be said of the states of all sources, and what was read to know it."""
        said = [*self._donors_clocks(draft, sources), *self._mixed_slots(draft, sources)]
        said += [Look(note) for note in schedules_apart(draft, sources, self._numbers)]
        after = as_it_stands(draft)
        notes = copies_of_others(after, sources)
        notes += clocks_of_others(after, sources, self.number, self.survey)
        said += map(Look, notes)
        return said + self._reads()

    def _donors_clocks(self, draft: Draft, sources: Mapping[str, Any]) -> list[Look]:
        """What becomes of slots that go on under a clock which was itself taken from a donor."""
        found = []
        for path, clock in draft.clocks.items():
            output = draft.leaves.get(path)
            origin = output.home if output is not None and not output.edits else None
            if origin is None or origin.source == SOURCE:
                continue
            own = [slot for slot in draft.driven_by(path) if _goes_on(slot, draft)]
            is_known = clock.path in self._checkpoint.tree
            if clock.drives not in NEEDS_SLOTS or not own or not is_known:
                continue
            ours = self.number(sources[origin.source], origin.path)
            theirs = self.number(self._checkpoint, clock.path)
            sizes = sizes_under_another_count(
                own[0],
                draft,
                lambda ref: self.number(sources.get(ref.source, self._checkpoint), ref.path),
            )
            clocked = Clocked(path, clock.drives, theirs, ours, decays_tried(own), sizes)
            if not clocked.agrees:
                said = f"'{path}' comes from '{origin.source}', and {_slots(own)} that it drives do not"
                said += f": {clocked.shifted}"
                found.append(Look(Consequence(DocsPage.DONOR_SLOTS, said)))
        return found

    def _mixed_slots(self, draft: Draft, sources: Mapping[str, Any]) -> list[Look]:
        """What becomes of slots that an edit by name averages with those of others, or takes from them."""
        found: dict[tuple[LeafPath, tuple[str, ...]], list[Slot]] = {}
        for slot in (draft.slots[path] for path in draft.changed if path in draft.slots):
            others = _others_of(slot, draft)
            for path in slot.clocks if others else ():
                clock = draft.clock_at(path)
                if clock is None or clock.path not in self._checkpoint.tree:
                    continue  # all of the state comes from elsewhere
                if clock.drives in NEEDS_SLOTS:
                    found.setdefault((path, others), []).append(slot)
        looks = []
        donors = {name for _, others in found for name in others}
        apart_from = {name: self._of_others(draft, sources[name]) for name in donors}
        for (place, others), slots in found.items():
            clock = draft.clock_at(place)
            if clock is None:
                continue
            path = clock.path
            counts = [self.number(sources[n], path) for n in others if path in sources[n].tree]
            now = self._numbers.becomes(place, draft, sources)
            decays = decays_tried(slots)
            apart = [c for c in counts if not Clocked(path, clock.drives, c, now, decays).agrees]
            strangers = [n for n in others if any(s.state in apart_from[n] for s in slots)]
            names = [
                n for n in strangers if any(self._is_of_another_kind(s, sources[n]) for s in slots)
            ]
            if apart or len(counts) < len(others):
                said = _mixed(place, clock.drives, slots, counts, now, draft)
                looks.append(Look(Consequence(DocsPage.DONOR_SLOTS, said)))
            if names:
                said = f"'{slots[0].state}' is not known to be of the same kind in {', '.join(map(repr, names))}"
                said += ": leave the optimizer state out, or reset it"
                looks.append(Look(Consequence(DocsPage.DONOR_SLOTS, said)))
            own_run = set(self._checkpoint.steps.values())
            for name in (
                n for n in strangers if n not in names and sources[n].address not in own_run
            ):
                kinds = {kind for s in slots for kind in self._kinds(s, sources[name])}
                if len(kinds) > 1:
                    taken = same_kind_as(name, sorted(kinds), "leave the optimizer state out")
                    looks.append(
                        Look(Consequence(DocsPage.DONOR_SLOTS, taken.sentence(slots[0].state)))
                    )
        return looks

    def _kinds(self, slot: Slot, other: Any) -> set[str]:
        """The kinds that the state of a slot may be, here and in another checkpoint."""
        both = (self.survey(source).slots.get(slot.path) for source in (self._checkpoint, other))
        return {kind for one in both if one is not None for kind in one.kinds}

    def _of_others(self, draft: Draft, origin: Any) -> set[LeafPath]:
        """The states that keep slots here which, by the record, were not made of the very ones of ``origin``."""
        is_of_it = leaves_of(origin, self._checkpoint)
        return {
            slot.state
            for slot in draft.slots.values()
            for part in stored_in(draft.leaves[slot.path].recipe, beyond=is_computed)
            if part.ref.source == SOURCE and not is_of_it(part.ref.path, slot.node)
        }

    def _is_of_another_kind(self, slot: Slot, other: Any) -> bool:
        """True if values tell of one of two slots of one name and shape what it is, and not the same of the other."""
        if slot.known_by == "disk" and slot.is_settled:
            return False
        ours, theirs = (self.survey(s).slots.get(slot.path) for s in (self._checkpoint, other))
        return ours is not None and theirs is not None and ours.power != theirs.power

    def _reads(self) -> list[Look]:
        """What was read, for the preview."""
        read, count = Look(None, self._numbers.bytes), len(self._numbers.sources)
        if all(source == id(self._checkpoint) for source in self._numbers.sources):
            return [*self._looks, read] if count else self._looks
        what, compared = "step count", "the clocks of both"
        if self._numbers.has_settings:
            what, compared = "number", "the clocks and settings of both"
        said = f"read {counted(count, what)}, to compare {compared}"
        return [
            *self._looks,
            msgspec.structs.replace(read, note=Remark(DocsPage.DONOR_SLOTS, said)),
        ]
