"""What slots are known to be once an edit by name gave them values from elsewhere: what is known of them there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from surgery_cli.draft.assumptions import together
from surgery_cli.draft.effect import Draws, Effect, Means, Sets, Takes
from surgery_cli.draft.placeholders import KIND
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.optimizer.follow.averaged_slots import members_of
from surgery_cli.optimizer.follow.clocks import has_restarted
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath

_KNOWN: Final = (
    "power", "is_even", "is_sign_open", "is_second_moment", "is_params_like", "takes_param", "fresh", "start",
    "keeps_start", "assumed", "fresh_assumed", "unsure_because", "settled_by", "known_by", "kinds",
)  # fmt: skip
"""The fields of a slot that say what it means."""

_MIXED: Final = "values were put into this state by name that are not known to be of the same kind"


def after_values_from_elsewhere(
    draft: Draft, effect: Effect, edited: Collection[LeafPath], scene: States
) -> Draft:
    """``draft`` with what is now known of the states into whose slots an edit with this effect put values by name.

    What metadata proves holds whatever the values are. What a record, or a look at values, told of a state is told of
    its own values; of others, it is what their own checkpoint tells.
    """
    if not isinstance(effect, Takes | Means | Sets | Draws):
        return draft
    named = {path for path in edited if path in draft.slots and _is_of_values(draft.slots[path])}
    named -= {path for path in named if has_restarted(draft.slots[path], draft)}
    states = {draft.slots[path].state for path in named}
    if not states:
        return draft
    held: dict[LeafPath, list[Slot]] = {}
    for slot in draft.slots.values():
        if slot.state in states and _is_of_values(slot):
            held.setdefault(slot.state, []).append(slot)
    changed: dict[LeafPath, Slot] = {}
    for slots in held.values():
        meant = [_meant(s, draft, effect, scene) if s.path in named else (s,) for s in slots]
        is_known = all(found and _is_one(found) for found in meant) and _is_alike(slots, meant)
        for slot, found in zip(slots, meant, strict=True):
            changed[slot.path] = _as(slot, found) if is_known else _open(slot, draft, scene)
    return draft.replaced(slots={**draft.slots, **changed})


def came_from_elsewhere(changed: Mapping[LeafPath, Output], after: Draft) -> list[LeafPath]:
    """The slots in whose place an edit of places put leaves of another checkpoint, among the ``changed`` leaves."""
    return [
        path
        for path, recipe in changed.items()
        if path in after.slots and recipe.home is not None and recipe.home.source != SOURCE
    ]


def _is_of_values(slot: Slot) -> bool:
    """True if what is known of the slot is told of its values, not proved by the metadata."""
    return slot.in_optimizer and slot.relation != "hole" and slot.known_by != "disk"


def _meant(slot: Slot, draft: Draft, effect: Effect, scene: States) -> tuple[Slot, ...]:
    """The slots from which the values of one come, as their own checkpoints know them; none if nobody does."""
    recipe = draft.leaves[slot.path]
    match effect:
        case Takes() if recipe.home is not None:
            refs = [recipe.home]
        case Means():
            refs = members_of(recipe.recipe)
        case _:
            return ()
    found = [scene.survey_of(ref.source, tell=True).slots.get(ref.path) for ref in refs]
    own = [slot] if isinstance(effect, Means) else []
    return tuple(own + [one for one in found if one]) if all(found) else ()


def _meaning(slot: Slot) -> tuple[object, ...]:
    return *slot.meaning, slot.start


def _is_one(slots: Collection[Slot]) -> bool:
    return all(s.is_settled for s in slots) and len(set(map(_meaning, slots))) == 1


def _is_alike(slots: Collection[Slot], meant: Collection[tuple[Slot, ...]]) -> bool:
    """True if every field of a state means one thing."""
    found: dict[LeafPath, set[tuple[object, ...]]] = {}
    for slot, every in zip(slots, meant, strict=True):
        found.setdefault(slot.node, set()).add(_meaning(every[0]))
    return all(len(meanings) == 1 for meanings in found.values())


def _as(slot: Slot, found: tuple[Slot, ...]) -> Slot:
    """The slot with what is known of those that its values come from."""
    if found == (slot,) or (slot.known_by == "word" and _meaning(found[0]) == _meaning(slot)):
        return slot
    if slot.known_by == "word":
        return msgspec.structs.replace(slot, known_by="run")
    assumed = together(each.assumed for each in found)
    return msgspec.structs.replace(_known_as(slot, found[-1]), assumed=assumed)


def _known_as(slot: Slot, other: Slot) -> Slot:
    """The slot with what is known of another."""
    return msgspec.structs.replace(slot, **{name: getattr(other, name) for name in _KNOWN})


def _open(slot: Slot, draft: Draft, scene: States) -> Slot:
    """The slot as one of which no more is known than metadata tells; what this run was told holds for this run."""
    if slot.known_by in ("word", "run"):
        return msgspec.structs.replace(slot, known_by="run")
    origin = draft.leaves[slot.path].home
    path = origin.path if origin is not None else slot.path
    base = scene.survey_of(SOURCE).slots.get(path)
    known = msgspec.structs.replace(slot, power=None, assumed=None)
    if base is not None and not base.is_settled:
        known = _known_as(slot, base)
    ways = (f"add {KIND} with its name", LIKE_INIT)
    return msgspec.structs.replace(
        known, unsure_because=_MIXED, settled_by=ways, known_by="undecided"
    )


def as_told(slot: Slot, draft: Draft, states: States, known: OptimizerSurvey | None) -> Slot:
    """A slot that came with an edit, with what is known of its values where they come from.

    ``known`` is the survey of the checkpoint that is edited.
    """
    home = draft.leaves[slot.path].home
    if slot.is_settled or not slot.in_optimizer or slot.relation == "hole" or home is None:
        return slot
    is_own = home.source == SOURCE and known is not None
    told = known if is_own else states.survey_of(home.source, tell=True)
    base = told.slots.get(home.path) if told is not None else None
    if base is None or not base.is_settled or base.name != slot.name:
        return slot
    return _known_as(slot, base)
