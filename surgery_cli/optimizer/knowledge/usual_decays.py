"""The arguments of optax's factories that say how fast moments are forgotten, and their defaults. Data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Argument(NamedTuple):
    """An argument of a factory, and its default; a moment that is not kept, or forgotten at once, has none, and 0."""

    name: str
    default: float


_NONE: Final = Argument("", 0.0)
_DECAY: Final = Argument("decay", 0.9)
_ADAM: Final = (Argument("b1", 0.9), Argument("b2", 0.999))

_OF_KINDS: Final[Mapping[str, tuple[Argument, Argument]]] = {
    "adabelief": _ADAM,
    "adam": _ADAM,
    "adamax": _ADAM,
    "ademamix": _ADAM,
    "adopt": (Argument("b1", 0.9), Argument("b2", 0.9999)),
    "amsgrad": _ADAM,
    "centered_rmsprop": (_DECAY, _DECAY),
    "rms": (_NONE, _DECAY),
    "simplified_ademamix": (Argument("b1", 0.99), Argument("b2", 0.95)),
    "stddev": (_DECAY, _DECAY),
    "yogi": _ADAM,
}
"""By kind of state: the arguments for first and second moments."""

_SCHEDULE_FREE: Final = (_NONE, Argument("b2", 0.999))  # its b1 is that of the average of params
_OF_FACTORIES: Final[Mapping[tuple[str, str], tuple[Argument, Argument]]] = {
    ("rmsprop", "rms_count"): (_NONE, _DECAY),
    ("scale_by_rms", "rms_count"): (_NONE, _DECAY),
    ("muon", "adam"): (Argument("adam_b1", 0.9), Argument("adam_b2", 0.999)),
    ("schedule_free_adamw", "adam"): _SCHEDULE_FREE,
    ("schedule_free_adamw", "rms"): _SCHEDULE_FREE,
    ("schedule_free_adamw", "rms_count"): _SCHEDULE_FREE,
}
"""By factory and kind of state, where factories that make such states differ, or one has others than most."""


def decay_arguments(kinds: tuple[str, ...], factory: str = "") -> tuple[Argument, ...]:
    """The arguments for first and second moments of a state of one of ``kinds``; none where they are not known.

    ``factory`` is the one that the user named. Where it may be a state of Adam, it is taken for one.

    >>> [argument.default for argument in decay_arguments(("adam", "adopt"))]
    [0.9, 0.999]
    >>> [argument.default for argument in decay_arguments(("rms_count",), "schedule_free_adamw")]
    [0.0, 0.999]
    """
    if "adam" in kinds:
        kinds = ("adam",)
    found = {_OF_FACTORIES.get((factory, kind), _OF_KINDS.get(kind, ())) for kind in kinds}
    return found.pop() if len(found) == 1 else ()
