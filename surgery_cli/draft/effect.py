"""What an edit does to the leaves that it names: one of a few effects, said by the operation itself.

The sum is closed. Whatever follows from an edit (what becomes of the optimizer's slots, which edits of slots are
refused, what the preview says) dispatches on the effect and on nothing else; a new operation says which one it has.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

import msgspec

from surgery_cli.draft.arrangement import Arrangement, ShapeMap
from surgery_cli.draft.expression import Recipe
from surgery_cli.tree.paths import LeafPath


class Keeps(msgspec.Struct, frozen=True):
    """The values stay what they were, but for rounding: another dtype."""


class Scales(msgspec.Struct, frozen=True):
    """The values are multiplied: ``by`` a number, or an array, or what is measured of the leaf.

    None where it is an array of which nothing is said: of an edit as a whole, whose leaves have each their own.
    ``is_positive``: no factor of the array is 0 or below. ``above``: of slots, what is left in them of their start,
    which stays; only what they have gathered above it is multiplied.
    """

    by: float | Recipe | None = None
    is_positive: bool = False
    above: float = 0.0


class Sets(msgspec.Struct, frozen=True):
    """Every element becomes the number ``to``, whatever it was."""

    to: float


class Masks(msgspec.Struct, frozen=True):
    """Elements become 0 where ``by`` is 0 or false, and stay what they were elsewhere.

    None of an edit as a whole, whose leaves have a mask each.
    """

    by: Recipe | None = None


class Draws(msgspec.Struct, frozen=True):
    """Every element is random, whatever it was; each path has random values of its own."""

    is_nonnegative: bool = False


class Takes(msgspec.Struct, frozen=True):
    """The leaf is taken from elsewhere: another checkpoint, or a file."""


class Means(msgspec.Struct, frozen=True):
    """The leaf becomes a weighted mean of itself and its like in other checkpoints."""


class Shifts(msgspec.Struct, frozen=True):
    """The values change by something else than a factor: no gradient follows from that.

    ``keeps_signs``: what is not negative stays so.
    """

    keeps_signs: bool = False


class Rearranges(msgspec.Struct, frozen=True):
    """Elements change their places, and the leaf perhaps its shape, by ``map``.

    None: of an edit as a whole, whose leaves have each their own. ``fill`` is what happens to values in new places.
    ``of``: where the leaves stood of which several were joined to this one, or of which this one is a part; empty if it
    is itself.
    """

    map: Arrangement | None = None
    fill: Effect | None = None
    of: tuple[LeafPath, ...] = ()

    @property
    def regroups(self) -> bool:
        """True if the leaf is several others, or a part of one."""
        return self.map is not None and self.map.regroups


class Resamples(msgspec.Struct, frozen=True):
    """The leaf gets another shape by ``map``: each element is a weighted sum of old ones along axes.

    None: of an edit as a whole, whose leaves have each their own.
    """

    map: ShapeMap | None = None
    regroups: ClassVar[bool] = False


Effect: TypeAlias = (
    Keeps | Scales | Sets | Masks | Draws | Takes | Means | Shifts | Rearranges | Resamples
)

ByMap: TypeAlias = Rearranges | Resamples
"""What gives leaves perhaps another shape, and their slots with them."""


def name_of(effect: Effect) -> str:
    """The word for it in documents.

    >>> name_of(Scales(0.5))
    'scales'
    """
    return type(effect).__name__.lower()


_NEW: Final = (Sets, Draws, Takes)


def is_new(effect: Effect) -> bool:
    """True if the values do not depend on what they were."""
    return isinstance(effect, _NEW)


def keeps_size(effect: Effect) -> bool:
    """True if the values stay about as large as they were."""
    return isinstance(effect, Keeps | Means | Rearranges | Resamples)


def keeps_start(effect: Effect, left: float) -> bool:
    """True if what is left of a slot's start, ``left``, is the same after an edit of the slot, to the last bits.

    >>> keeps_start(Scales(0.5), 0.0), keeps_start(Scales(0.5), 0.1), keeps_start(Scales(0.5, above=0.1), 0.1)
    (True, False, True)
    """
    match effect:
        case Scales(above=start):
            return start == left
        case Rearranges(map=by):
            return by is None or by.grows is None
        case _:
            return False


def may_be_negative(effect: Effect) -> bool:
    """True if the effect can make values negative that were not; an array of factors is not looked into."""
    match effect:
        case Scales(by=float() | int() as number) | Sets(to=number):
            return number < 0
        case Draws(is_nonnegative=never):
            return not never
        case Shifts(keeps_signs=never):
            return not never
        case Rearranges(fill=fill) if fill is not None:
            return may_be_negative(fill)
        case _:
            return False


def moves_alone(effect: Effect) -> bool:
    """True if every element is one that was there before, whatever the elements are.

    >>> moves_alone(Rearranges()), moves_alone(Sets(0.0)), moves_alone(Resamples())
    (True, False, False)
    """
    match effect:
        case Keeps():
            return True
        case Rearranges(map=by):
            return by is None or by.grows is None
        case _:
            return False


def gives_new_places(effect: Effect) -> bool:
    """True if something is put into places that were not there."""
    return isinstance(effect, Rearranges) and effect.fill is not None


def constant_after(effect: Effect, before: float | None) -> float | None:
    """The one number that every element is afterwards; ``before`` is what every element was, where that is known.

    >>> constant_after(Sets(1.0), None), constant_after(Scales(0.5), 3.0), constant_after(Scales(0.5), None)
    (1.0, 1.5, None)
    """
    match effect:
        case Sets(to=number):
            return number
        case Keeps():
            return before
        case Rearranges(map=by):
            return before if by is None or by.grows is None else None
        case Scales(by=float() | int() as factor, above=start) if before is not None or factor == 0:
            return start + factor * ((before or 0) - start)
        case Scales(above=start):
            return before if before == start else None
        case Masks():
            return before if before == 0 else None
        case _:
            return None
