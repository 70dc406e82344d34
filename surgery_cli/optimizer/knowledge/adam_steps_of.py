"""Which optimizers take Adam's steps, so that the sizes worked out for Adam are theirs. Data, tried out by a test."""

from __future__ import annotations

from functools import cache
from typing import Final

from surgery_cli.optimizer.knowledge.factories import FACTORIES, every_factory_of

_OF_ADAM: Final = (("adam", "adam"), ("adamw", "adam"), ("scale_by_adam", "adam"))
_OF_NADAM: Final = (("nadam", "adam"), ("nadamw", "adam"))

UNDER_ANOTHER_COUNT: Final = frozenset(
    {*_OF_ADAM, *_OF_NADAM, ("adabelief", "adabelief"), ("scale_by_belief", "adabelief")}
)
"""Factories, with the kind of their state, whose next steps under another count are as much larger as Adam's are.

RAdam rectifies by the count, LAMB divides by the norm of what comes, Adamax and AMSGrad keep the largest, ACProp takes
the squares of the step before, and Adan and AdEMAMix weigh other moments. Yogi and RMSProp add so much to the root of
their squares that small gradients are nothing beside it.
"""

UNDER_ANOTHER_DECAY: Final = frozenset(_OF_ADAM)
"""Those whose next steps are as much larger as Adam's are where one side has another decay."""

AFTER_A_RESTART: Final = frozenset({*_OF_ADAM, *_OF_NADAM})
"""Those whose steps are as many learning rates large as Adam's once moments restart under a count that goes on."""


@cache
def whose_steps(
    kinds: tuple[str, ...], factory: str, proved: frozenset[tuple[str, str]]
) -> str | None:
    """Under which condition the size of Adam's steps is told: '' if it is sure, None if it is not like that.

    ``factory`` is the one that the user named, ``kinds`` are those that the state may be.

    >>> whose_steps(("adam",), "nadam", UNDER_ANOTHER_COUNT), whose_steps(("adam",), "radam", UNDER_ANOTHER_COUNT)
    ('', None)
    >>> whose_steps(("adam", "adabelief"), "", UNDER_ANOTHER_COUNT), whose_steps(("adan",), "", UNDER_ANOTHER_COUNT)
    ('if it is Adam, ', None)
    """
    makers = [factory] if factory else every_factory_of(kinds)
    pairs = [(maker, kind) for maker in makers for kind in kinds if kind in FACTORIES[maker]]
    if pairs and proved.issuperset(pairs):
        return ""
    return "if it is Adam, " if not factory and (not kinds or "adam" in kinds) else None
