"""How the shapes of slots follow from the shapes of their params."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, ...]


class ShapePair(NamedTuple):
    """The shapes of a param and of a leaf at its place; ``tail`` are the printed keys behind that place."""

    param: Shape
    slot: Shape
    tail: str


def relation(pairs: Collection[ShapePair]) -> str | None:
    """How the shapes of a group follow from the params' shapes; None if no rule fits all of them.

    A rule that holds for every pair is looked for, from the strictest on; params without axes fit any.

    >>> relation([ShapePair((8, 6), (8, 6), ""), ShapePair((3,), (3,), "")])
    'same'
    >>> relation([ShapePair((8, 6), (8,), "0"), ShapePair((8, 6), (6,), "1")])
    'axis'
    >>> relation([ShapePair((8, 6), (6, 8), "")])
    """
    if any(pair.tail.isdigit() for pair in pairs):
        return "axis" if all(map(_is_axis, pairs)) else None
    strictest = (name for name, fits in _RULES if all(fits(p, s) for p, s, _ in pairs))
    return next(strictest, None) or ("stacked" if _are_stacked(pairs) else None)


def _is_axis(pair: ShapePair) -> bool:
    return pair.tail.isdigit() and pair.slot == (pair.param[int(pair.tail)],)


def _are_stacked(pairs: Collection[ShapePair]) -> bool:
    """True if every slot has one more leading axis, of one length for all."""
    return (
        all(len(s) == len(p) + 1 and s[1:] == p for p, s, _ in pairs)
        and len({pair.slot[0] for pair in pairs}) == 1
    )


def is_reduced(param: Shape, slot: Shape) -> bool:
    """True if ``slot`` is ``param`` without some of its axes, in order."""
    rest = iter(param)
    return len(slot) < len(param) and all(size in rest for size in slot)


_RULES: tuple[tuple[str, Callable[[Shape, Shape], bool]], ...] = (
    ("same", lambda p, s: s == p),
    ("scalar", lambda p, s: s == ()),
    ("one", lambda p, s: s == (1,)),
    ("factored", lambda p, s: s in (p, (1,)) or (len(p) > 1 and s != () and is_reduced(p, s))),
)


def relation_in_factored(param: Shape, slot: Shape) -> str:
    """The relation of one leaf of a factored group, which has whole and unused leaves too."""
    return "same" if slot == param else "one" if slot == (1,) else "factored"
