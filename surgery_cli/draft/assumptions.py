"""What a run takes for granted, mostly of optimizer state: neither proved nor said, and not ruled out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

import msgspec

from surgery_cli.draft.placeholders import KIND, slots_line
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import InPlan, worded
from surgery_cli.words.lists import listed

ADAM_FAMILY: Final = "Adam's family"


class Assumption(msgspec.Struct, frozen=True, omit_defaults=True):
    """What slots are taken for, what else they may be, and what settles it.

    It stands in previews and records wherever a slot follows an edit because of it. ``is_of_the_run``: it hangs on all
    params and on how training went, which no trial of the optimizer on tiny params shows.
    """

    taken_for: str
    unless: tuple[str, ...] = ()
    settled_by: str = ""
    is_of_the_run: bool = False

    def sentence(self, node: object) -> str:
        """The note about the state at ``node``.

        >>> Assumption("a start of 0", ("yogi",), "say so").sentence("opt_state/0")
        "'opt_state/0' is taken for a start of 0, which is not proved: if it is yogi, say so"
        """
        other = f"if it is {listed(self.unless, word='or')}, " if self.unless else ""
        other = f": {other}{self.settled_by}" if self.settled_by else ""
        return f"'{node}' is taken for {self.taken_for}, which is not proved{other}"


BY_VALUES: Final = Assumption(
    ADAM_FAMILY,
    (
        "adopt",
        "LaProp",
        "adabelief of gradients near its `eps`",
        "adamax with b1 >= b2",
        "yogi whose start still shows",
        "centered rmsprop with an `initial_scale`",
    ),
    f"add {KIND} with its name",
)
"""What ``{count, mu, nu}`` is taken for whose values do not rule it out (see ``evidence``)."""

ZERO_START: Final = Assumption(
    "a state that starts at 0",
    ("yogi", "centered rmsprop with an `initial_scale`"),
    f"add {KIND} with its name",
)
"""What a reset takes ``{count, mu, nu}`` for: of the optimizers that keep it, few start elsewhere."""


TREE_OF_NAMES: Final = Assumption(
    "a tree of dicts, as the names of its arrays tell (there is no `_METADATA`)",
    (
        "one with lists or tuples (they come back as dicts with number keys)",
        "one with None leaves (which are not known)",
    ),
    "Orbax may refuse the target that it was saved from, and without a target it restores none; where `_METADATA` was"
    " lost, copy it again from where the checkpoint is whole",
)
"""Of an item beside whose other files Orbax writes ``_METADATA``, unless it is told not to."""

KEEP_OR_RESET: Final = "use `--optimizer keep` or `reset`"

PLAIN_GRADIENTS: Final = Assumption(
    "one of the factory that was named, with nothing before it",
    ("one behind an active clip, centralizing, noise, another trust ratio or decay of gradients",),
    KEEP_OR_RESET,
)
"""A factory was named, and what stands before it in the chain left no trace on disk."""

ABOVE_FLOOR: Final = Assumption(
    "one of params above the floor of their scale",
    ("one of params of a root mean square below 0.001",),
    KEEP_OR_RESET,
)
"""Adafactor multiplies by the root mean square of a param, or by its floor."""

NO_MASK: Final = Assumption(
    "one whose params all have a trust ratio",
    ("one of params that `trust_ratio_mask` leaves out",),
    KEEP_OR_RESET,
)
"""A setting of LARS decides what reaches its momentum, leaf by leaf."""

NO_EPSILON: Final = Assumption(
    "a state beside whose gradients no `eps` is felt",
    ("one of gradients near its `eps`", "one with decay of its own"),
    KEEP_OR_RESET,
)
"""A slot holds updates that were divided by gradients plus an epsilon."""

SAME_SIGNS: Final = Assumption(
    "a state whose gradients keep their signs",
    ("one behind decay of gradients (`add_decayed_weights`), which may turn them",),
    KEEP_OR_RESET,
)
"""A slot follows the signs of what reaches it, and a factor moves the decay against the gradients."""

SAME_ESTIMATE: Final = Assumption(
    "a state whose step size, one estimate for all params, stays what it is",
    ("a share of all params that sets this estimate",),
    KEEP_OR_RESET,
    is_of_the_run=True,
)
"""Slots are weighted by an estimate that a factor of some params changes for all of them."""

SAME_SEARCH: Final = Assumption(
    "a state whose line searches end where they did",
    ("searched along other lines with the new params",),
    KEEP_OR_RESET,
    is_of_the_run=True,
)

FAR_FROM_START: Final = Assumption(
    "a state that has left its start, `reps_rel` times (1 + the norm of the param), far behind",
    ("still near it",),
    "use `--optimizer keep`",
)


def same_kind_as(
    source: str, kinds: Iterable[str], settled_by: str = "use `--optimizer warm` or `reset`"
) -> Assumption:
    """Slots of another checkpoint go on in a state that may be of another kind: ``kinds`` keep states like it."""
    names = (name.replace("_", " ") for name in kinds)
    return Assumption(
        f"one of the same kind as in '{source}'",
        (f"of another ({listed(names)} keep states of the same names and shapes)",),
        settled_by,
    )


def copy_of(params: LeafPath, node: LeafPath, *, needs_of: bool = False) -> Assumption:
    """A tree like the params stands beside the optimizer state, and nothing says what it is.

    ``needs_of``: who says it must say whose it is as well.

    >>> copy_of(LeafPath(("params",)), LeafPath(("v",))).sentence("v").partition(":")[0]
    "'v' is taken for a copy of 'params', which is not proved"
    """
    of = {"of": str(params)} if needs_of else {}
    whose = f"of: {params}, " if needs_of else ""
    return Assumption(
        f"a copy of '{params}'",
        (),
        worded(
            "add {} if it holds gradients (a first moment), with `{{{}power: -2, even: true, second_moment: true,"
            " fresh: 0}}` if their squares, with `{{{}copy: true}}` if it is a copy of the params, or with"
            " `{{ignore: true}}` if no edit of params shall touch it",
            InPlan(slots_line(node, **of, power="-1", fresh="0")),
            whose,
            whose,
        ),
    )


def seen_at(gradients: Mapping[float, bool], params: Mapping[float, bool]) -> Assumption | None:
    """An optimizer was tried out: at which sizes of gradients and of params a power held.

    >>> seen_at({1e-3: True, 1.0: True}, {1e-5: False, 1.0: True}).unless
    ('one that meets params of about 1e-05, where a floor of a scale, an epsilon or decay is felt',)
    """
    axes = (
        ("gradients", gradients, "a clip, an epsilon or decay"),
        ("params", params, "a floor of a scale, an epsilon or decay"),
    )
    found = [axis for axis in axes if not all(axis[1].values())]
    if not found:
        return None
    good = [f"{name} of about {listed(_sizes(held, True), word='and')}" for name, held, _ in found]
    return Assumption(
        f"one that meets {' and '.join(good)}, as it did where it was tried out",
        tuple(
            f"one that meets {name} of about {listed(_sizes(held, False), word='or')}, where {felt} is felt"
            for name, held, felt in found
        ),
        KEEP_OR_RESET,
    )


def _sizes(held: Mapping[float, bool], which: bool) -> list[str]:
    """The sizes at which it held, or did not: neighbours as the range that they are."""
    groups = (list(group) for _, group in groupby(sorted(held.items()), lambda one: one[1]))
    ranges = ((group[0][0], group[-1][0]) for group in groups if group[0][1] is which)
    return [f"{a:g}" if a == b else f"{a:g} to {b:g}" for a, b in ranges]


def together(every: Iterable[Assumption | None]) -> Assumption | None:
    """All of these at once; None if there is none."""
    found = list(dict.fromkeys(one for one in every if one is not None))
    if len(found) < 2:
        return found[0] if found else None
    return Assumption(
        listed((one.taken_for for one in found), word="and"),
        tuple(dict.fromkeys(name for one in found for name in one.unless)),
        "; ".join(dict.fromkeys(one.settled_by for one in found)),
        any(one.is_of_the_run for one in found),
    )


def usual_start(setting: str, value: float) -> Assumption:
    """A factory was named, and a setting of it is taken to be optax's own."""
    return Assumption(
        f"a state that starts at {value:g}, optax's default for `{setting}`",
        (f"of a script that sets `{setting}`",),
        "say its start in `slots:` with `fresh:`",
    )
