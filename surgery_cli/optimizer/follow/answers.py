"""What slots do when their param is edited: a table of effects and policies, and nothing else decides it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from surgery_cli.draft.effect import (
    Draws,
    Effect,
    Keeps,
    Masks,
    Means,
    Rearranges,
    Resamples,
    Scales,
    Sets,
    Shifts,
    Takes,
    name_of,
)
from surgery_cli.draft.recipe import is_numeric
from surgery_cli.draft.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Answer(Enum):
    """What becomes of a slot."""

    STAYS = auto()
    FRESH = auto()
    """The optimizer's initial value; of a mask, where it is 0."""
    MEAN = auto()
    """Its own mean in every element: a usual step size for values that are new."""
    FOLLOWS = auto()
    """As the param, by what the slot is."""
    REFUSED = auto()
    """Nothing follows; what a donor has may be taken."""


class Answers(NamedTuple):
    """The answers to an effect by policy; ``reset`` is FRESH in all of them. ``default`` is the policy if none is said.

    Under ``warm``, second moments have an answer of their own, and first moments are FRESH.
    """

    keep: Answer
    transform: Answer
    warm_second: Answer
    default: str

    def of(self, policy: str, *, is_second_moment: bool) -> Answer:
        """The answer of a slot that holds second moments, or of any other."""
        if policy == "reset":
            return Answer.FRESH
        if policy == "warm":
            return self.warm_second if is_second_moment else Answer.FRESH
        return self.keep if policy == "keep" else self.transform


POLICIES: Final = ("keep", "transform", "reset", "warm")
OptimizerPolicy = Annotated[
    str,
    Meta(pattern=f"^({'|'.join(POLICIES)})$", description="What becomes of the twins."),
]

_STAYS, _MEAN, _FOLLOWS, _REFUSED = Answer.STAYS, Answer.MEAN, Answer.FOLLOWS, Answer.REFUSED

_TABLE: Final[Mapping[type, Answers]] = {
    Keeps: Answers(_STAYS, _STAYS, _STAYS, "keep"),
    Scales: Answers(_STAYS, _FOLLOWS, _STAYS, "transform"),
    Sets: Answers(_STAYS, _REFUSED, _MEAN, "warm"),
    Masks: Answers(_STAYS, _FOLLOWS, _STAYS, "transform"),
    Draws: Answers(_STAYS, _REFUSED, _MEAN, "warm"),
    Takes: Answers(_STAYS, _REFUSED, _MEAN, "warm"),
    Means: Answers(_STAYS, _FOLLOWS, _STAYS, "warm"),
    Shifts: Answers(_STAYS, _REFUSED, _STAYS, "keep"),
    Rearranges: Answers(_FOLLOWS, _FOLLOWS, _FOLLOWS, "transform"),
    Resamples: Answers(_REFUSED, _FOLLOWS, _FOLLOWS, "warm"),
}

_BY_NAME: Final = {kind.__name__.lower(): answers for kind, answers in _TABLE.items()}

_BY_ZERO: Final = Answers(_STAYS, _REFUSED, _REFUSED, "reset")
"""Of a factor of 0, which leaves nothing to follow."""


def answers_to(effect: Effect) -> Answers:
    """The row of the table.

    >>> answers_to(Sets(1.0)).of("warm", is_second_moment=True).name, answers_to(Scales(0)).default
    ('MEAN', 'reset')
    """
    return _BY_ZERO if effect == Scales(0) else _TABLE[type(effect)]


def answers_of(slots: Iterable[Slot], policy: str, effect: Effect) -> dict[LeafPath, Answer]:
    """What becomes of each slot of a param, by its path."""
    every = answers_to(effect)
    return {s.path: every.of(policy, is_second_moment=s.is_second_moment) for s in slots}


def may_follow(slot: LeafSpec, effect: Effect) -> bool:
    """True for slots of numbers; whatever their elements are, they move with those of their params."""
    return is_numeric(slot) or (isinstance(effect, Rearranges) and slot.has_array)


_FOLLOWING: Final[Mapping[str, str]] = {
    name_of(Scales()): "scaled to match",
    name_of(Masks()): "first moments 0 where their params are, second moments kept",
    name_of(Means()): "averaged with their params",
    name_of(Rearranges()): "rearranged with their params",
    name_of(Resamples()): "interpolated with their params",
}
"""What it is for slots to follow an effect, in words."""

_SAID: Final = {
    Answer.STAYS: "as they were",
    Answer.FRESH: "as the optimizer starts them",
    Answer.MEAN: "at their mean",
}

_PLACES: Final = {"carried": "edited like their params", "donor": "taken with their params"}
"""What becomes of slots for which no policy is asked."""


def meaning(policy: str, effect: str) -> str:
    """What a policy does to slots under an effect, by their names, in words; '' where the policy's name says it.

    >>> meaning("transform", "scales"), meaning("keep", "shifts"), meaning("moved", "")
    ('scaled to match', 'as they were', '')
    >>> meaning("warm", "rearranges")
    'first moments 0, second moments rearranged with their params'
    """
    if policy not in POLICIES:
        return _PLACES.get(policy, "")
    answers = _BY_NAME.get(effect)
    if answers is None:
        return _SAID[Answer.FRESH] if policy == "reset" else ""
    answer = answers.of(policy, is_second_moment=policy == "warm")
    said = _SAID.get(answer) or _FOLLOWING.get(effect, "")
    if effect == name_of(Masks()) and policy in ("warm", "reset"):
        return _FOLLOWING[effect] if policy == "warm" else f"{said}, where their params are 0"
    if policy == "warm":
        return f"first moments 0, second moments {'kept' if answer is Answer.STAYS else said}"
    return f"as they were, {said}" if policy == "keep" and answer is Answer.FOLLOWS else said


def default_policy(effect: Effect) -> str:
    """What happens to slots if nobody says: ``transform`` for factors and masks, ``warm`` for new values."""
    return answers_to(effect).default
