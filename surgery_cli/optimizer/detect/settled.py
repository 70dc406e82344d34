"""What is known of slots beyond the metadata: by an earlier run's record, or because values rule out the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Literal

import msgspec

from surgery_cli.draft.assumptions import BY_VALUES, Assumption
from surgery_cli.draft.placeholders import KIND, slots_line
from surgery_cli.draft.slots import Faded, Slot
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.detect.starts import left_of
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import InPlan, worded


class Settled(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename=lambda name: name.removeprefix("is_"),
):
    """What a record keeps of the slots of one field, so that a later run on the result need not be told again.

    ``node`` is the spelling of the node that mirrors the params, ``name`` the field. ``by`` says how the rest is known
    (see ``Slot.known_by``); of ``undecided`` slots nothing is, or not what is left of their start, and no later look
    shall decide otherwise. ``kinds`` are those that the state may be by somebody's word. Of a copy of the params
    beside the optimizer state, no more is kept.
    """

    node: str
    name: str
    by: Literal["word", "values", "undecided"]
    kinds: tuple[str, ...] = ()
    power: int | None = None
    is_even: bool = False
    is_sign_open: bool = False
    is_second_moment: bool = False
    is_params_like: bool = False
    fresh: float | None = None
    start: float | None = None
    faded: Faded | None = None
    assumed: Assumption | None = None
    fresh_assumed: Assumption | None = None
    donor_assumed: Assumption | None = None
    is_copy: bool = False


_OF_SLOTS: Final = (
    "power", "is_even", "is_sign_open", "is_second_moment", "is_params_like", "fresh", "start", "faded", "assumed",
    "fresh_assumed", "donor_assumed",
)  # fmt: skip
"""What a slot and the record say of its field alike."""

_MEANING: Final = ("power", "is_even", "is_sign_open", "is_second_moment", "is_params_like")
"""What a slot of a kind that was said holds, though it is not known what is left of its start."""


def _known_of(one: Slot | Settled) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _OF_SLOTS}


def to_record(slots: Iterable[Slot], spelled: Callable[[LeafPath], str]) -> list[Settled]:
    """What is worth keeping of ``slots``, by field; fields whose slots are not all alike are left out."""
    found: dict[tuple[LeafPath, str], set[Settled]] = {}
    spellings: dict[LeafPath, str] = {}
    for slot in slots:
        if slot.known_by not in ("disk", "run") and slot.relation != "hole":
            node = slot.node
            if node not in spellings:
                spellings[node] = spelled(node)
            found.setdefault((node, slot.name), set()).add(_settled(slot, spellings[node]))
    return [alike.pop() for alike in found.values() if len(alike) == 1]


def _settled(slot: Slot, node: str) -> Settled:
    if slot.known_by == "undecided" or not slot.is_settled:
        is_told = len(slot.kinds) == 1 and slot.power is not None
        found = {name: getattr(slot, name) for name in ("kinds", *_MEANING)} if is_told else {}
        unproved = slot.donor_assumed
        return Settled(node=node, name=slot.name, by="undecided", donor_assumed=unproved, **found)
    is_word = slot.known_by in ("word", "record")
    if not slot.in_optimizer:
        return Settled(node=node, name=slot.name, by="word", is_copy=True)
    return Settled(
        node=node,
        name=slot.name,
        by="word" if is_word else "values",
        kinds=slot.kinds if is_word else (),
        **_known_of(slot),
    )


def recalled(
    survey: OptimizerSurvey, known: Collection[Settled], spelled: Callable[[LeafPath], str]
) -> OptimizerSurvey:
    """The survey with what an earlier run's record tells of slots that nothing else settles."""
    by_field = {(one.node, one.name): one for one in known}

    def told(slot: Slot) -> Slot:
        name = slot.name if slot.in_optimizer else str(slot.node[-1])
        one = by_field.get((spelled(slot.node), name))
        if one is None or slot.relation == "hole":
            return slot
        if not slot.in_optimizer:  # a word alone tells slots from a copy of the params
            return _told_apart(slot, one) if one.by == "word" else slot
        if one.is_copy:
            return slot
        if slot.is_settled:
            if slot.fresh is not None or one.fresh is None or one.by != "word":
                return slot
            return msgspec.structs.replace(
                slot, fresh=one.fresh, fresh_assumed=one.fresh_assumed, known_by="word"
            )
        if one.by == "undecided":
            taken = msgspec.structs.replace(
                slot, known_by="undecided", donor_assumed=one.donor_assumed
            )
            return _without_start(taken, one) if one.kinds else taken
        return slot.settled(
            **_known_of(one),
            takes_param=one.is_params_like,
            known_by="record" if one.by == "word" else one.by,
            kinds=one.kinds or slot.kinds,
        )

    if not by_field:
        return survey
    return _with(survey, {path: told(slot) for path, slot in survey.slots.items()})


def _without_start(slot: Slot, one: Settled) -> Slot:
    """The slot with the kind that somebody said, of whose start nobody knows what is left."""
    return msgspec.structs.replace(
        slot,
        start=None,
        kinds=one.kinds,
        unsure_because="it is not known what is left of its start",
        settled_by=(
            worded(
                "add {} with the optax factory, and {}, with S what is left of it",
                KIND,
                InPlan(slots_line(slot.node, start="S")),
            ),
            LIKE_INIT,
        ),
        **{name: getattr(one, name) for name in _MEANING},
    )


def _told_apart(copy: Slot, one: Settled) -> Slot:
    """What metadata take for a copy of the params beside the optimizer state, as the slot that somebody said it is."""
    if one.is_copy:
        return msgspec.structs.replace(copy, assumed=None, known_by="record")
    return copy.settled(
        **_known_of(one),
        name=one.name,
        optimizer="",
        in_optimizer=True,
        takes_param=one.is_params_like,
        known_by="record",
        kinds=one.kinds,
    )


def judged(
    survey: OptimizerSurvey, looked_at: Collection[LeafPath], like_adam: Collection[LeafPath]
) -> OptimizerSurvey:
    """The survey after a look at the values of some states, of which some are taken for Adam's family."""
    slots = dict(survey.slots)
    for unsure in survey.unsure:
        for path in unsure.slots if unsure.owner in looked_at else ():
            slot = slots[path]
            if unsure.owner in like_adam:
                slots[path] = slot.settled(
                    power=unsure.adam_power, assumed=BY_VALUES, known_by="values"
                )
            else:
                because = f"{slot.unsure_because}, and their values leave it open"
                slots[path] = msgspec.structs.replace(
                    slot, known_by="undecided", unsure_because=because
                )
    return _with(survey, slots)


def _with(survey: OptimizerSurvey, slots: dict[LeafPath, Slot]) -> OptimizerSurvey:
    unsure = [u for u in survey.unsure if not all(slots[path].is_settled for path in u.slots)]
    return msgspec.structs.replace(survey, slots=slots, unsure=unsure)


def said_by_script(before: OptimizerSurvey, after: OptimizerSurvey) -> OptimizerSurvey:
    """``after``, what a trial of the script's optimizer made of ``before``, with what follows from initial values."""

    def told(slot: Slot) -> Slot:
        old = before.slots[slot.path]
        known = (slot.power, slot.assumed, slot.fresh)
        if known == (old.power, old.assumed, old.fresh) or (
            slot.power is None and old.power is not None
        ):
            return slot
        start = slot.start
        if start is None and slot.fresh is not None and slot.fresh != old.fresh:
            start = left_of(slot.fresh, stays=slot.keeps_start)
        is_new = slot.power is not None and start is not None
        reason = {"unsure_because": "", "settled_by": ()} if is_new else {}
        return msgspec.structs.replace(
            slot, start=start, known_by="word", fresh_assumed=None, **reason
        )

    return _with(after, {path: told(slot) for path, slot in after.slots.items()})
