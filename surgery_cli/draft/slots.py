"""What a twin of a param in the optimizer state is: which param it belongs to, and how an edit reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from surgery_cli.draft.assumptions import Assumption
from surgery_cli.tree.paths import LeafPath

Source: TypeAlias = Literal["disk", "word", "run", "record", "values", "undecided"]
"""How a meaning is known: the metadata tell it; somebody said it, or of other values than it has by now (``run``: no
record keeps that), or to an earlier run (``record``); values did not rule it out, or left it open."""


UNKNOWN = "unknown"
"""The ``optimizer`` of a slot in a state that no optimizer of the tables makes."""

SAID = "named in `slots:`"
"""That of a slot of which only the user says what it is."""


class Fading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A start of which ``decay`` is left with every step that the integer at ``clock`` counts."""

    clock: LeafPath
    decay: float


class Faded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much of a start ``steps`` steps have left, each of them ``decay``; see ``LeftOfStart`` for ``blur``."""

    decay: float
    steps: int
    blur: float


class Factoring(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which part of a factored second moment a slot is, and which params are known to have one.

    ``whole`` is the moment itself, of params that are not factored. A param is factored if its second largest axis is
    long enough: ``factored`` is the shortest such axis of which that is known, ``unfactored`` the longest of which it
    is known that it is not; 0 where there is none.
    """

    part: Literal["row", "column", "whole"]
    factored: int = 0
    unfactored: int = 0

    def is_factored(self, shape: tuple[int, ...]) -> bool | None:
        """True for params of this shape; None if that is not known, not even with optax's own default.

        >>> Factoring(part="row", factored=64).is_factored((32, 96)) is None
        True
        >>> Factoring(part="row").is_factored((128, 500)), Factoring(part="row").is_factored((10, 500))
        (True, False)
        """
        if len(shape) < 2:
            return False
        size = sorted(shape)[-2]
        if size <= self.unfactored or (self.factored and size >= self.factored):
            return size > self.unfactored
        if self.unfactored < LEAST_FACTORED and not 0 < self.factored < LEAST_FACTORED:
            return size >= LEAST_FACTORED
        return None

    def is_shown(self, shape: tuple[int, ...]) -> bool:
        """True if other params of the state show whether those of this shape are factored."""
        size = sorted(shape)[-2] if len(shape) > 1 else 0
        return size <= self.unfactored or 0 < self.factored <= size


LEAST_FACTORED = 128
"""``min_dim_size_to_factor`` of optax, T5X and Flax, unless a script sets another."""


class Slot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A leaf of the optimizer state (or beside it) that belongs to a param.

    If p' = c·p and the function computed stays the same, slot' = sign(c)^odd · |c|^power · slot.

    ``power`` is None where the disk cannot tell. ``is_even`` if signs do not follow that of the factor; whether they
    do ``is_sign_open`` where somebody said an even power alone.
    ``relation`` says how its shape follows from the param's: ``same``, ``stacked`` (a leading axis), ``scalar``
    (one number), ``one`` (a ``(1,)`` placeholder), ``axis`` (a vector for one axis, ``axis`` below), ``factored``
    (rows or columns of a factored second moment), ``hole`` (nothing is stored: None or an empty container where the
    optimizer leaves out the param, or all params below the node ``param``; it moves with them and has no values),
    ``other``.
    ``is_params_like`` marks copies of the params themselves (z, slow weights, EMA inside the optimizer): always
    carried. ``in_optimizer`` is False for copies beside the optimizer state (EMA params, target networks).
    ``fresh`` is the optimizer's own initial value (None: not known); ``takes_param`` if it starts as the param.
    ``start`` is what is left of that value in the slot, which no factor of the params scales (None: not known);
    ``keeps_start`` if all of it stays for good, ``fading`` how it fades where that was tried out, and
    ``faded`` after how many steps ``start`` is what is left.
    ``decay`` is what a step leaves of it where that was tried out.
    ``is_per_leaf`` if the power holds for one factor of the whole param, but for no array of factors.
    ``node`` is the node that mirrors the params, ``root`` the node of the params that it mirrors. ``factoring`` is that
    of a second moment which may be factored.
    ``is_told`` marks a power that the user said in ``slots:``. ``unsure_because`` says why a power or what is left of
    a start is not known, ``settled_by`` what would settle it, the ways in order. ``known_by`` says how the power is
    known, ``assumed`` what it and the start rest on where that is no proof, ``fresh_assumed`` likewise of ``fresh``.
    ``factory`` is the one that the user named, ``said`` the same if it was named for the whole tree. ``kinds`` are
    those that its state may be by the metadata and the user's word, ``donor_assumed`` what it rests on where it came
    from a donor with its param. ``over_leaf``: a trial
    showed whether the update of an element hangs on others of its leaf, be it by a part of the optimizer without slots.
    """

    path: LeafPath
    param: LeafPath
    name: str
    power: int | None
    is_even: bool = False
    is_sign_open: bool = False
    relation: str = "same"
    axis: int | None = None
    is_params_like: bool = False
    in_optimizer: bool = True
    is_second_moment: bool = False
    fresh: float | None = 0.0
    start: float | None = 0.0
    keeps_start: bool = False
    fading: Fading | None = None
    faded: Faded | None = None
    decay: float | None = None
    is_per_leaf: bool = False
    takes_param: bool = False
    clocks: tuple[LeafPath, ...] = ()
    optimizer: str = ""
    node: LeafPath = LeafPath()
    root: LeafPath = LeafPath()
    factoring: Factoring | None = None
    is_told: bool = False
    unsure_because: str = ""
    settled_by: tuple[str, ...] = ()
    known_by: Source = "disk"
    factory: str = ""
    said: str = ""
    assumed: Assumption | None = None
    fresh_assumed: Assumption | None = None
    donor_assumed: Assumption | None = None
    kinds: tuple[str, ...] = ()
    over_leaf: bool | None = None

    @property
    def title(self) -> str:
        """Its name, and what made it as far as that is known: a family is told by the form of the state alone.

        >>> Slot(path=LeafPath(("opt", "nu")), param=LeafPath(("w",)), name="nu", power=-2, optimizer="rmsprop").title
        "nu of a state like rmsprop's"
        """
        family = f"a state like {self.optimizer}'s" if self.is_recognised else "an unknown state"
        if self.optimizer == SAID:
            family = "a state that `slots:` names"
        return f"{self.name} of {self.factory or family}"

    @property
    def is_recognised(self) -> bool:
        """True if the tables have a state of that form."""
        return self.optimizer not in ("", UNKNOWN, SAID)

    @property
    def is_settled(self) -> bool:
        """True if it is known how the slot follows a factor."""
        return self.power is not None and self.start is not None

    def settled(self, **known: Any) -> Slot:
        """The slot with what is ``known`` of it now, of which nothing is left to settle."""
        return msgspec.structs.replace(self, unsure_because="", settled_by=(), **known)

    def rebased(self, place: Callable[[LeafPath], LeafPath], **own: LeafPath) -> Slot:
        """The slot where nodes and clocks got another ``place``; ``own`` says where itself and its param stand."""
        return msgspec.structs.replace(
            self,
            node=place(self.node),
            root=place(self.root),
            clocks=tuple(map(place, self.clocks)),
            **own,
        )

    @property
    def meaning(self) -> tuple[int | None, bool, bool, bool]:
        """What it holds, whatever it is called; slots of one meaning stand in for each other."""
        return self.power, self.is_even, self.is_second_moment, self.is_params_like

    @property
    def blur(self) -> float:
        """By how much rounding may have moved what is left of its start."""
        return self.faded.blur if self.faded is not None else 0.0

    @property
    def state(self) -> LeafPath:
        """The node of the state that the slot is a part of; slow weights beside the fast ones are one of their own."""
        above = self.node.parent
        is_alone = self.is_params_like and self.root.is_below(above)
        return self.node if is_alone or self.node[-1:] == ("param_states",) or not above else above

    @property
    def whole_state(self) -> LeafPath:
        """The topmost node above it that does not hold the params as well: the whole state of its optimizer."""
        shared = 0
        while self.node[shared : shared + 1] == self.root[shared : shared + 1] != ():
            shared += 1
        return LeafPath(self.node[: shared + 1])

    @property
    def part(self) -> LeafPath:
        """Where it stands below the place that mirrors its param: the axis of a vector, `real` of a complex leaf."""
        inside, old = self.path[len(self.node) :], self.param[len(self.root) :]
        return LeafPath(inside[len(old) if inside[: len(old)] == old else max(len(old) - 1, 0) :])

    def place_for(self, param: LeafPath) -> LeafPath | None:
        """Where this slot stands for a param at another path; None if the node does not mirror that path.

        >>> mu = Slot(path=LeafPath(("opt", "mu", "a", "w")), param=LeafPath(("params", "a", "w")), name="mu",
        ...           power=-1, node=LeafPath(("opt", "mu")), root=LeafPath(("params",)))
        >>> str(mu.place_for(LeafPath(("params", "b", "w"))))
        'opt/mu/b/w'
        """
        if not param.is_below(self.root):
            return None
        inside = self.path[len(self.node) :]
        old, new = self.param[len(self.root) :], param[len(self.root) :]
        if inside[: len(old)] != old:  # NNX: the slot stands beside the last key `value`, not below
            old = old[:-1]
            new = new[:-1] if new[-1:] == ("value",) else new
        return self.node / (*new, *inside[len(old) :])


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """An integer scalar of the optimizer state that counts, and what it drives.

    ``drives`` is one of ``bias_correction``, ``decay``, ``schedule``, ``cycle``, ``memory``, ``first_step``,
    ``nothing``, ``counter``; ``slots`` are the paths of the slots that depend on it.
    """

    path: LeafPath
    drives: str
    slots: tuple[LeafPath, ...] = ()
    fresh: int = 0
