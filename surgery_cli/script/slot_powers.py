"""What trial runs show of a slot: of which power of a factor it is, beside what is left of its start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple, TypeAlias

import msgspec

from surgery_cli.draft.assumptions import Assumption, seen_at, together
from surgery_cli.draft.slots import Fading
from surgery_cli.script.fading import Started, tried_starts
from surgery_cli.script.pytrees import param_of
from surgery_cli.script.trial_runs import (
    GRADIENTS,
    MOST_STEPS,
    PARAMS,
    STEPS,
    Leaves,
    Runs,
    Sizes,
    Trial,
    Values,
)
from surgery_cli.tree.paths import LeafPath

USUAL: Final = (Sizes(1e-3), Sizes(1.0))
"""At one of these a power must hold: where clips rest, or where no epsilon and no decay is felt."""
_POWERS: Final = (-1, -2, 0, 1, 2)
_MIXED: Final = "what is left of its start depends on the gradients (as in Yogi), or they are clipped or decayed"
_NO_VALUES: Final = (
    f"it stayed zero in {MOST_STEPS} steps, as where gradients are accumulated over more,"
    " or did not stay finite"
)
_NO_POWER: Final = "it follows no power of a factor of its own param alone"
_TOLERANCE: Final = 2e-3
"""How far a slot may lie from what its power makes of it, relative."""


class Measured(msgspec.Struct, frozen=True):
    """What was seen of one slot: its power and parity (see ``Slot``), and its initial value.

    ``power`` is None where the slot is no power of the factor, or has ``no_values``: it stayed zero, as where a trial
    is too small or too short to fill it. ``because`` says which. ``fresh`` is None where initial values are not all
    the same. ``is_per_leaf``: the power holds for one factor of a whole leaf, not for arrays of factors. ``assumed``
    names the sizes of gradients and params at which it holds, if not at all. Of an initial value other than zero, all
    ``stays``, or it fades by one of ``fadings``; with neither, ``start_because`` says why that is not known.
    """

    power: int | None
    is_even: bool
    fresh: float | None
    because: str = ""
    is_per_leaf: bool = False
    assumed: Assumption | None = None
    stays: bool = False
    fadings: tuple[Fading, ...] = ()
    start_because: str = ""
    decay: float | None = None
    """What a step without gradients leaves of it, where that is one share of every element."""
    no_values: bool = False
    over_leaf: bool | None = None
    """What is seen of the updates of its param: see ``Slot``."""

    @property
    def rule(self) -> tuple[int | None, bool]:
        """What a factor does to it, whole leaves at once."""
        return self.power, self.is_even

    def below(self, node: LeafPath, taken: Assumption | None = None) -> Measured:
        """The same, with paths below ``node``; and a power that rests on ``taken`` as well."""
        fadings = tuple(
            msgspec.structs.replace(one, clock=node / one.clock) for one in self.fadings
        )
        assumed = together((self.assumed, taken)) if self.power is not None else None
        return msgspec.structs.replace(self, fadings=fadings, assumed=assumed)


def all_alike(seen: Sequence[Measured]) -> Measured | None:
    """What was seen of several slots, if it is one; of updates, which leaves differ in, what all say that say it."""
    rest = {msgspec.structs.replace(one, over_leaf=None) for one in seen}
    said = {one.over_leaf for one in seen} - {None}
    if len(rest) > 1:
        return None
    return msgspec.structs.replace(rest.pop(), over_leaf=said.pop() if len(said) == 1 else None)


_NO_RULE: Final = (None, False)
_MOVES_OTHERWISE: Final = Measured(*_NO_RULE, None, _NO_POWER)
HAS_NO_VALUES: Final = Measured(*_NO_RULE, None, _NO_VALUES, no_values=True)
_LEAST: Final = 1e-2
"""Params of a model may be of any size from here on."""

Seen: TypeAlias = Mapping[Sizes, Measured | None]
"""What runs of each size show of a slot; None where they show nothing."""


def held_at(usual: Sizes, fresh: float | None, seen: Seen) -> Measured:
    """A power that holds at ``usual``, and at which other sizes (see ``Sizes.cross``)."""
    rule = (seen[usual] or Measured(*_NO_RULE, None)).rule
    by_gradients = {size: seen[usual._replace(gradients=size)] for size in GRADIENTS}
    by_params = {size: seen[usual._replace(params=size)] for size in PARAMS}
    rules = {one.rule for size, one in by_params.items() if one is not None and size >= _LEAST}
    if rules - {_NO_RULE} != {rule}:
        return Measured(None, False, fresh, "its power depends on how large the params are")
    shown = [one for one in (*by_gradients.values(), *by_params.values()) if one is not None]
    axes = (
        {size: one.rule == rule for size, one in every.items() if one is not None}
        for every in (by_gradients, by_params)
    )
    per_leaf = any(one.is_per_leaf for one in shown)
    return Measured(*rule, fresh, is_per_leaf=per_leaf, assumed=seen_at(*axes))


def measured_above_starts(
    trial: Trial, fresh: Mapping[LeafPath, float]
) -> dict[LeafPath, Measured]:
    """What is seen of slots that start elsewhere than at zero: whether all but what is left of it follows a power.

    Gradients are also as large as the start and its root, where rules that mix both in another way show it.
    """
    starts = tried_starts(trial, fresh)
    known = {path: one for path, one in starts.items() if one.stays or one.fadings}
    found = {
        path: Measured(None, False, one.fresh, one.because, start_because=one.because)
        for path, one in starts.items()
        if path not in known
    }
    steps = max([STEPS, *(one.steps for one in known.values())])
    near = [
        Sizes(size * times)
        for start in sorted({abs(one.fresh) for one in known.values()})
        for size in (math.sqrt(start), start)
        for times in (1.0, 10.0)
    ]
    for path, start in known.items():
        one = _above_start(path, trial, start, steps, near)
        found[path] = (
            msgspec.structs.replace(one, stays=start.stays, fadings=start.fadings)
            if one.power is not None
            else Measured(None, False, start.fresh, _MIXED, start_because=_MIXED)
        )
    return found


def _above_start(
    path: LeafPath, trial: Trial, start: Started, steps: int, near: Sequence[Sizes]
) -> Measured:
    """What is seen of one slot beside its start, in the runs of all sizes that show it."""
    nothing = Measured(None, False, start.fresh)
    param = param_of(path, trial.params)
    if param is None:
        return nothing
    # what a start hides at usual gradients, larger ones show
    sizes = (*USUAL, *near, Sizes(GRADIENTS[-1]))
    seen = seen_in(path, param, sizes, trial.runs(sizes, steps), start)
    told = {size: one for size in sizes if (one := seen[size]) is not None}
    usual = next((size for size, one in told.items() if one.power is not None), None)
    if usual is None or {told[n].rule for n in near if n in told} - {told[usual].rule}:
        return nothing
    cross = usual.cross
    return held_at(usual, start.fresh, seen_in(path, param, cross, trial.runs(cross, steps), start))


def seen_in(
    path: LeafPath,
    param: LeafPath,
    sizes: Sequence[Sizes],
    runs: Runs,
    start: Started | None = None,
) -> dict[Sizes, Measured | None]:
    """What the runs of each size show; None where what a slot gathers cannot be told from what is left of its start."""
    import numpy as np

    slots = _gathered(runs.last, path, start)
    factors = runs.factors(param, slots.shape)
    shows, moves = slots.shows(), slots.moves()
    found: dict[Sizes, Measured | None] = {
        size: (_MOVES_OTHERWISE if moves[n] else HAS_NO_VALUES) if shows[n] else None
        for n, size in enumerate(sizes)
    }
    is_open = shows & moves
    for power, is_even in product(_POWERS, (False, True)):
        holds = is_open & slots.follow(power, is_even, factors.numbers, 1)
        if not holds.any():
            continue
        is_open &= ~holds
        by_element = factors.arrays is not None and slots.follow(
            power, is_even, factors.arrays, 1 + len(factors.numbers)
        )
        whole = np.broadcast_to(~np.asarray(by_element), holds.shape)
        for n in np.flatnonzero(holds).tolist():
            found[sizes[n]] = Measured(power, is_even, None, is_per_leaf=bool(whole[n]))
    return found


def initial_value(starts: Values) -> float | None:
    """The initial value, where it is one number whatever the params are."""
    if not starts.size:
        return None
    first = float(starts.flat[0])
    return first if (starts == first).all() else None


def _gathered(states: Leaves, path: LeafPath, start: Started | None) -> _Gathered:
    import numpy as np

    values = states[path]
    left = np.broadcast_to(start.left(states) if start else 0.0, values.shape[:2])
    left = left.reshape(*left.shape, *(1 for _ in values.shape[2:]))
    return _Gathered(values - left, left)


class _Gathered(NamedTuple):
    """What a slot holds beside what is ``left`` of its start: [sizes, runs, the slot's shape], the first run plain."""

    values: Values
    left: Values

    @property
    def shape(self) -> tuple[int, ...]:
        """The slot's own."""
        return tuple(self.values.shape[2:])

    def shows(self) -> Values:
        """Whether the plain values stand out from what rounding does to the start: [sizes]."""
        return _all(abs(self.values[:, 0]) >= 100 * _noise(self.left[:, 0]))

    def moves(self) -> Values:
        """Whether there are plain values, none of them zero and all finite: [sizes]."""
        import numpy as np

        plain = self.values[:, 0]
        return _all(np.isfinite(plain) & (plain != 0)) & bool(plain.size)

    def follow(self, power: int, is_even: bool, factors: Values, first: int) -> Values:
        """Whether the runs from ``first`` on are what a power of their factors makes of the plain one: [sizes]."""
        import numpy as np

        own = slice(first, first + len(factors))
        scale = abs(factors) ** power
        with np.errstate(invalid="ignore"):  # what did not stay finite follows nothing
            wanted = self.values[:, :1] * scale * (1 if is_even else np.sign(factors))
            most = _TOLERANCE * abs(wanted) + _noise(self.left[:, own]) * (1 + scale)
            return _all(abs(self.values[:, own] - wanted) <= most)


def _all(values: Values) -> Values:
    """Whether all is true, by the first axis."""
    return values.reshape(len(values), -1).all(axis=1)


def _noise(left: Values) -> Values:
    """By how much rounding may move a slot that holds this much of its start."""
    return 16 * 2.0**-24 * abs(left)
