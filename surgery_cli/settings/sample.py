"""Which part of a checkpoint is checked: a share drawn at random, or one of several turns."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Final

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.settings.declaration import Group, setting

SampleText = Annotated[
    str | None,
    setting(
        "Read a part alone: 5%, drawn at random, or 3/20, the third of twenty turns that together read all.",
        Group.CHECK,
        "P%|K/N",
    ),
]
SampleSeed = Annotated[
    int | None,
    setting(
        "Seed of `--sample P%`; else a new one is taken, and shown.", Group.CHECK, "N", least=0
    ),
]

_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")
_TURN: Final = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


class Sample(msgspec.Struct, frozen=True):
    """``share`` of the bytes, at random, or the part of ``turn`` (from 1 on) of ``turns``, which together are all."""

    text: str
    share: Fraction | None = None
    turn: int = 0
    turns: int = 0


def sample_of(text: str) -> Sample:
    """What `--sample` was given.

    >>> sample_of("2.5%").share, sample_of("3/20").turns
    (Fraction(1, 40), 20)

    Raises:
        PlanError: it is neither a share nor a turn.
    """
    typed = text.strip()
    if found := _SHARE.fullmatch(typed):
        share = Fraction(found[1]) / 100
        if 0 < share <= 1:
            return Sample(typed, share=share)
    elif found := _TURN.fullmatch(typed):
        turn, turns = int(found[1]), int(found[2])
        if 1 <= turn <= turns:
            return Sample(typed, turn=turn, turns=turns)
    raise PlanError(
        f"`--sample {text}` is no part of a checkpoint",
        why="it is a share, above 0 and up to 100 %, or one of several turns, from 1 on",
        fix="e.g. `--sample 5%`, at random, or `--sample 3/20`, the third night of twenty",
        field="sample",
    )
