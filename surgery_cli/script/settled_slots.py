"""What becomes of the slots of a state that a trial of an optimizer was made for: powers, starts and initial values."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from surgery_cli.draft.assumptions import Assumption, together
from surgery_cli.draft.placeholders import slots_line
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.script.fading import UNCOUNTED
from surgery_cli.script.pytrees import plain_path
from surgery_cli.script.slot_powers import Measured, all_alike
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import InPlan, worded


def settled(survey: OptimizerSurvey, measured: Mapping[LeafPath, Measured]) -> OptimizerSurvey:
    """The survey with what a trial told: powers that the metadata leave open, and initial values.

    A power that is known by the optimizer's kind stays as it is, unless it rests on settings, which a trial shows.
    ``measured`` is by the plain path in the tree. A slot that was not measured, because its param has another name in
    the script, is as the others of its field are, if those are all alike.
    """
    found = _found(survey, measured)
    moments = _factored(survey, found)
    slots: dict[LeafPath, Slot] = {}
    for path, slot in survey.slots.items():
        seen = found.get(path)
        if seen is None:
            continue
        over_leaf = seen.over_leaf
        if seen.no_values and slot.factoring is not None:
            seen = moments.get((slot.state, slot.param), seen)
        new = slot if seen.decay is None else msgspec.structs.replace(slot, decay=seen.decay)
        if over_leaf is not None:
            new = msgspec.structs.replace(new, over_leaf=over_leaf)
        is_open = slot.power is None or (rests_on_settings(slot) and not seen.no_values)
        if is_open and seen.power is None:
            new = msgspec.structs.replace(
                new,
                power=None,
                assumed=_of_the_run(slot),
                unsure_because=f"tried out, {seen.because}",
                settled_by=tuple(way for way in slot.settled_by if way != LIKE_INIT)
                if seen.no_values
                else (),
            )
        elif is_open:
            new = new.settled(
                power=seen.power,
                is_even=seen.is_even,
                is_per_leaf=seen.is_per_leaf,
                assumed=together((seen.assumed, _of_the_run(slot))),
                start=None if seen.fadings else seen.fresh if seen.stays else slot.start,
            )
        if (
            seen.fresh is not None
            and not slot.takes_param
            and not _is_close(slot.fresh, seen.fresh)
        ):
            new = msgspec.structs.replace(new, fresh=seen.fresh)
        if new.power is not None and new.start is None:
            new = _started(new, seen)
        if new is not slot:
            slots[path] = new
    every = {**survey.slots, **slots}
    unsure = [
        msgspec.structs.replace(u, by_values=False) if slots.keys() & set(u.slots) else u
        for u in survey.unsure
        if not all(every[path].is_settled for path in u.slots)
    ]
    return msgspec.structs.replace(survey, slots=every, unsure=unsure)


def rests_on_settings(slot: Slot) -> bool:
    """True if a power is known by the kind of the state, for some settings of the optimizer that made it."""
    return (
        slot.power is not None
        and slot.known_by == "disk"
        and slot.assumed is not None
        and not slot.assumed.is_of_the_run
    )


def _of_the_run(slot: Slot) -> Assumption | None:
    """What a slot is taken for that no trial shows."""
    return slot.assumed if slot.assumed is not None and slot.assumed.is_of_the_run else None


def _started(slot: Slot, seen: Measured) -> Slot:
    """A slot whose power is known, with what was seen of its start."""
    if seen.power == slot.power and seen.stays:
        return slot.settled(start=seen.fresh)
    paces = {one.clock: one for one in seen.fadings if seen.power == slot.power}
    clock = next((clock for clock in slot.clocks if plain_path(clock) in paces), None)
    if clock is not None:
        fading = msgspec.structs.replace(paces[plain_path(clock)], clock=clock)
        return msgspec.structs.replace(slot, fading=fading)
    because = seen.start_because or seen.because or UNCOUNTED
    return msgspec.structs.replace(
        slot,
        unsure_because=f"tried out, {because}",
        settled_by=(
            worded("add {}, with S what is left of it", InPlan(slots_line(slot.node, start="S"))),
        ),
    )


def advised(survey: OptimizerSurvey, instead: str) -> OptimizerSurvey:
    """The survey, in which slots that are still unsure are not said to be settled by what has been tried.

    ``instead`` is what would make the trial possible, '' if nothing.
    """
    slots = {
        path: msgspec.structs.replace(
            slot,
            settled_by=tuple(
                filter(None, (instead if way == LIKE_INIT else way for way in slot.settled_by))
            ),
        )
        for path, slot in survey.slots.items()
    }
    return msgspec.structs.replace(survey, slots=slots)


def _found(
    survey: OptimizerSurvey, measured: Mapping[LeafPath, Measured]
) -> dict[LeafPath, Measured]:
    """What was seen of each slot, or of all others of its field alike, by its path."""
    fields = _by_field(survey, measured)
    seen = {
        path: measured.get(plain_path(path), fields.get(slot.node))
        for path, slot in survey.slots.items()
        if slot.relation != "hole"
    }
    return {path: one for path, one in seen.items() if one is not None}


def _factored(
    survey: OptimizerSurvey, found: Mapping[LeafPath, Measured]
) -> dict[tuple[LeafPath, LeafPath], Measured]:
    """What was seen of second moments that may be factored, by state and param.

    Rows and columns are means of the moment, and follow as it does. The tiny params of a trial may have it whole where
    those on disk have it factored, or the other way round; what is not there is a placeholder.
    """
    parts: dict[tuple[LeafPath, LeafPath], set[Measured]] = {}
    for path, one in found.items():
        slot = survey.slots[path]
        if slot.factoring is not None and not one.no_values:
            plain = msgspec.structs.replace(one, decay=None, over_leaf=None)
            parts.setdefault((slot.state, slot.param), set()).add(plain)
    return {key: seen.pop() for key, seen in parts.items() if len(seen) == 1}


def _by_field(
    survey: OptimizerSurvey, measured: Mapping[LeafPath, Measured]
) -> dict[LeafPath, Measured]:
    """What was seen of all slots of a field alike, by the field's node."""
    nodes = {plain_path(slot.node): slot.node for slot in survey.slots.values()}
    seen: dict[LeafPath, list[Measured]] = {}
    for path, one in measured.items():
        above = (nodes.get(LeafPath(path[:depth])) for depth in range(len(path) + 1))
        for node in filter(None, above):
            seen.setdefault(node, []).append(one)
    alike = {node: all_alike(found) for node, found in seen.items()}
    return {node: one for node, one in alike.items() if one is not None}


def _is_close(known: float | None, seen: float) -> bool:
    """True if two initial values are one, apart from rounding to float32."""
    return known is not None and math.isclose(known, seen, rel_tol=1e-6)
