"""Twins from the checkpoint from which their params were taken, where they mean the same under the clocks here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from surgery_cli.draft.assumptions import Assumption, same_kind_as, together
from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.slots import Clock, Slot
from surgery_cli.draft.source import is_same_place
from surgery_cli.optimizer.follow.clock_agreement import Clocked
from surgery_cli.optimizer.follow.clocks import NEEDS_SLOTS, standing
from surgery_cli.optimizer.follow.decays import Decays, decays_tried
from surgery_cli.optimizer.follow.donor_numbers import Shared, shared_numbers
from surgery_cli.optimizer.follow.donor_recipes import grafted
from surgery_cli.optimizer.follow.donor_schedules import Schedules
from surgery_cli.optimizer.follow.donor_settings import OneSided, one_sided_settings, why_of_clock
from surgery_cli.optimizer.follow.donor_untold import (
    counted_apart,
    unsaid,
    untold_there,
    why_untold,
)
from surgery_cli.optimizer.follow.states import States
from surgery_cli.optimizer.follow.step_sizes import sizes_under_another_count
from surgery_cli.optimizer.follow.untold_counters import UntoldCounters, counterpart
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

_NO_STATE: Final = "it has no optimizer state of such params"
_NOT_THERE: Final = "its optimizer has not the same slots"


class Taken(msgspec.Struct):
    """What a donor has for the slots of a param: recipes, or why they are not to be taken.

    ``because`` is empty where there are recipes. ``assumed`` says what the states are taken
    for that get them, ``clocks`` are those under which they would go on, ``apart`` what differs that changes the steps
    alone, ``one_sided`` what only one side has on disk.
    """

    recipes: dict[LeafPath, Output] = {}
    because: str = ""
    assumed: dict[LeafPath, Assumption] = {}
    clocks: tuple[Clocked, ...] = ()
    apart: tuple[str, ...] = ()
    one_sided: tuple[OneSided, ...] = ()


class Donors:
    """The optimizer states of donors."""

    def __init__(self, scene: States) -> None:
        self._scene = scene
        self._known: dict[tuple[str, bool], dict[LeafPath, list[Slot]]] = {}
        self._schedules: dict[str, Schedules] = {}
        self._several: dict[LeafPath, LeafPath] | None = None
        self._counters: tuple[Draft, UntoldCounters] | None = None

    def twins(
        self,
        origin: LeafRef,
        slots: Sequence[Slot],
        draft: Draft,
        specs: Mapping[LeafPath, LeafSpec] = {},
    ) -> Taken:
        """Recipes for all ``slots``, from the donor's slots of the param ``origin``.

        ``specs``: what slots must be, where they are not to be what they are.
        """
        tree = self._scene.open(origin.source)[1].tree
        theirs = self._of_param(origin, slots)
        found: dict[LeafPath, Output] = {}
        pairs: list[tuple[Slot, Slot]] = []
        for slot in slots:
            other = _counterpart(slot, theirs)
            own = specs.get(slot.path) or draft.leaves[slot.path].spec
            if other is None or tree[other.path].shape != own.shape:
                return Taken(because=self._lacking(slots, theirs, origin.source))
            recipe = grafted(LeafRef(origin.source, other.path), tree[other.path], own, slot.path)
            if recipe is None:
                return Taken(because=_NOT_THERE)
            found[slot.path] = recipe
            pairs.append((slot, other))
        decays = decays_tried(slot for slot, _ in pairs)
        every = (c for pair in pairs for c in self._clocked(*pair, origin.source, draft, decays))
        clocks = tuple({clock.path: clock for clock in every}.values())
        sided = one_sided_settings(pairs, clocks, origin.source, draft, self._scene)
        shared = tuple(self._shared(pairs, origin.source, draft))
        apart_by = next((self._sized(c, pairs, draft) for c in clocks if not c.agrees), None)
        because = why_of_clock(apart_by, sided, shared) if apart_by is not None else ""
        because = because or self._uncompared(slots, draft)
        because = because or self._of_another_kind(pairs, origin.source, draft)
        because = because or next(self._counted_apart(pairs, origin.source, draft), "")
        because = because or next((one.sentence() for one in shared if not one.agrees), "")
        because = because or next((one.because for one in sided if one.because), "")
        if because:
            return Taken(because=because, clocks=clocks)
        apart = [one.sentence() for one in shared if one.changes_steps]
        schedules = self._schedules.get(origin.source)
        if schedules is None or schedules.draft is not draft:
            schedules = Schedules(draft, origin.source, self._scene)
            self._schedules[origin.source] = schedules
        apart += schedules.apart(pairs)
        alike = self._alike(pairs, origin.source, draft)
        return Taken(found, "", alike, clocks, tuple(apart), tuple(sided))

    def _uncompared(self, slots: Sequence[Slot], draft: Draft) -> str:
        """Why counts beside these slots cannot be compared: each is several numbers, as in an ensemble."""
        if self._several is None:
            self._several = {
                (path.parent.parent if path[-1] == "value" else path.parent): path
                for path, output in draft.leaves.items()
                if output.spec.shape and is_integer(output.spec.dtype)
            }
        found = (self._several.get(slot.node.parent) for slot in slots)
        several = next((path for path in found if path is not None), None)
        return f"'{several}' holds several counts, which are not compared" if several else ""

    def _lacking(self, slots: Sequence[Slot], theirs: Sequence[Slot], donor: str) -> str:
        """Why a donor has not all that there is here, of which it has what is ``theirs``."""
        if untold := untold_there(slots, theirs):
            return why_untold(untold, self._param_of(theirs[0], donor))
        return _NOT_THERE if any(slot.in_optimizer for slot in theirs) else _NO_STATE

    def _param_of(self, other: Slot, donor: str) -> LeafRef:
        """A param that has a slot in the same tree of a donor: the same for whichever of them."""
        every = (slot for slots in self._of(donor).values() for slot in slots)
        place = self._scene.open(donor)[1].address  # a plan's name for it says nothing outside
        return LeafRef(place, next(slot.param for slot in every if slot.node == other.node))

    def _counted_apart(
        self, pairs: Sequence[tuple[Slot, Slot]], donor: str, draft: Draft
    ) -> Iterator[str]:
        """Where a number that may count the steps of slots is another one there."""
        tree = self._scene.open(donor)[1].tree
        if self._counters is None or self._counters[0] is not draft:
            self._counters = draft, UntoldCounters(draft)
        for slot, other in pairs:
            for path in self._counters[1].of([slot]):
                there = counterpart(path, slot, other)
                if there is not None and there in tree and tree[there].size == 1:
                    theirs = self._scene.number(LeafRef(donor, there))
                    ours = self._standing(path, draft)
                    clock = Clocked(path, "", theirs, ours, there=there)
                    if not clock.is_sure:
                        yield counted_apart(clock, donor)

    def _shared(
        self, pairs: Sequence[tuple[Slot, Slot]], donor: str, draft: Draft
    ) -> Iterable[Shared]:
        """The numbers by which these slots go here and there, each once."""
        found = (n for pair in pairs for n in shared_numbers(*pair, donor, draft, self._scene))
        return {number.path: number for number in found}.values()

    def _of_another_kind(self, pairs: Sequence[tuple[Slot, Slot]], donor: str, draft: Draft) -> str:
        """Why some slots are not known to hold the same as those of the donor; values are read only for this."""
        for slot, other in pairs:
            if self._are_of_one_field(slot, other, donor, draft):
                continue
            ours = self.told(slot, draft.leaves[slot.path].home)
            theirs = self.told(other, LeafRef(donor, other.path))
            if ours.power is None or theirs.power is None:
                return unsaid(pairs, ours, theirs, self._param_of(other, donor))
            kinds = set(ours.kinds), set(theirs.kinds)
            if ours.meaning != theirs.meaning or (all(kinds) and kinds[0].isdisjoint(kinds[1])):
                return f"'{other.node}' there is of another kind than '{slot.node}' here"
        return ""

    def _are_of_one_field(self, slot: Slot, other: Slot, donor: str, draft: Draft) -> bool:
        """True if the donor is the checkpoint that is edited, and both stand in one field there: whatever it holds."""
        output, source = draft.leaves[slot.path], self._scene.source
        if output.edits or output.home is None or output.home.source != SOURCE:
            return False
        if not is_same_place(source, self._scene.open(donor)[1]):
            return False
        own = self._scene.survey_of(donor).slots.get(output.home.path)
        return own is not None and (own.node, own.name) == (other.node, other.name)

    def _alike(
        self, pairs: Sequence[tuple[Slot, Slot]], donor: str, draft: Draft
    ) -> dict[LeafPath, Assumption]:
        """What is assumed of each state: to be of the donor's kind, unless both can be of one kind alone."""
        found: dict[LeafPath, Assumption] = {}
        for slot, other in pairs:
            ours = self.told(slot, draft.leaves[slot.path].home)
            theirs = self.told(other, LeafRef(donor, other.path))
            kinds = {*ours.kinds, *theirs.kinds}
            is_one = len(kinds) < 2 or self._are_of_one_field(slot, other, donor, draft)
            new = None if is_one else same_kind_as(donor, sorted(kinds))
            every = (found.get(slot.state), ours.donor_assumed, theirs.donor_assumed, new)
            if (taken := together(every)) is not None:
                found[slot.state] = taken
        return found

    def told(self, slot: Slot, origin: LeafRef | None) -> Slot:
        """A slot with its power, where values of the stored leaf tell what metadata does not."""
        if slot.power is not None or origin is None:
            return slot
        told = self._scene.survey_of(origin.source, tell=True).slots.get(origin.path, slot)
        return msgspec.structs.replace(
            told, path=slot.path, param=slot.param, relation=slot.relation
        )

    def _clocked(
        self, slot: Slot, other: Slot, donor: str, draft: Draft, decays: Decays | None
    ) -> Iterator[Clocked]:
        """The clocks that matter to a slot, with those of its counterpart."""
        there = self._scene.survey_of(donor).clocks
        for path in slot.clocks:
            clock = draft.clock_at(path) or self._clock_of_donor(path, draft)
            if clock is None or clock.drives not in NEEDS_SLOTS:
                continue
            same = [p for p in other.clocks if p in there and there[p].drives == clock.drives]
            place = same[0] if len(same) == 1 else None
            theirs = self._scene.number(LeafRef(donor, place)) if place is not None else None
            ours = self._standing(path, draft)
            yield Clocked(path, clock.drives, theirs, ours, decays, there=place)

    def _sized(self, clock: Clocked, pairs: Sequence[tuple[Slot, Slot]], draft: Draft) -> Clocked:
        """The clock with for whom it is told how large next steps are: asked once for the slots of a param."""
        slot = next(slot for slot, _ in pairs if clock.path in slot.clocks)
        sizes = sizes_under_another_count(slot, draft, self._scene.number)
        return msgspec.structs.replace(clock, sizes=sizes)

    def _clock_of_donor(self, path: LeafPath, draft: Draft) -> Clock | None:
        """What a clock counts that was itself taken from a donor."""
        origin = draft.leaves[path].home if path in draft.leaves else None
        return self._scene.survey_of(origin.source).clocks.get(origin.path) if origin else None

    def _standing(self, path: LeafPath, draft: Draft) -> float | None:
        """What a clock stands at after the edits so far."""
        return standing(draft.leaves[path], self._scene.number)

    def _of(self, name: str, *, tell: bool = False) -> dict[LeafPath, list[Slot]]:
        if (name, tell) not in self._known:
            by_param: dict[LeafPath, list[Slot]] = {}
            for slot in self._scene.survey_of(name, tell=tell).slots.values():
                by_param.setdefault(slot.param, []).append(slot)
            self._known[name, tell] = by_param
        return self._known[name, tell]

    def _of_param(self, origin: LeafRef, slots: Iterable[Slot]) -> list[Slot]:
        """The donor's slots of a param: as its record says, where metadata alone tells no slots like these."""
        found = self._of(origin.source).get(origin.path, [])
        if all(slot.is_recognised or _counterpart(slot, found) for slot in slots):
            return found
        return self._of(origin.source, tell=True).get(origin.path, [])


def is_taken(param: LeafPath, draft: Draft, before: Draft) -> bool:
    """True for a param that the edit took from elsewhere."""
    origin = draft.leaves[param].home
    return origin is not None and param in before.leaves and origin != before.leaves[param].home


def resting_on(assumed: Mapping[LeafPath, Assumption], draft: Draft) -> Draft:
    """``draft``, of whose states some rest on an assumption: they took slots from a donor."""
    if not assumed:
        return draft
    slots = {
        path: msgspec.structs.replace(slot, donor_assumed=assumed[slot.state])
        for path, slot in draft.slots.items()
        if slot.state in assumed and slot.relation != "hole"
    }
    return draft.replaced(slots={**draft.slots, **slots})


def _counterpart(slot: Slot, theirs: Sequence[Slot]) -> Slot | None:
    """The same slot in the donor: in the same state, else the only one of its name in the same family."""
    alike = [
        other
        for other in theirs
        if (other.name, other.axis, other.relation, _family(other))
        == (slot.name, slot.axis, slot.relation, _family(slot))
        and other.path[len(other.node) + len(other.param) - len(other.root) :]
        == slot.path[len(slot.node) + len(slot.param) - len(slot.root) :]
    ]
    same = [other for other in alike if other.node == slot.node]
    found = same or alike
    return found[0] if len(found) == 1 else None


def _family(slot: Slot) -> str:
    """What form its state has, if it is one of the tables: of all others, a word says what they are, or nothing."""
    return slot.optimizer if slot.is_recognised else ""
