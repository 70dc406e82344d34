"""What a run takes for granted of a state of the optimizer: neither proved nor said, and not ruled out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from surgery_cli.optimizer.placeholders import KIND

ADAM_FAMILY: Final = "Adam's family"


class Assumption(msgspec.Struct, frozen=True, omit_defaults=True):
    """What slots are taken for, what else they may be, and what settles it.

    It stands in previews and records wherever a slot follows an edit because of it.
    """

    taken_for: str
    unless: tuple[str, ...] = ()
    settled_by: str = ""

    def sentence(self, node: object) -> str:
        """The note about the state at ``node``.

        >>> Assumption("a start of 0", ("yogi",), "say so").sentence("opt_state/0")
        "'opt_state/0' is taken for a start of 0, which is not proved: if it is yogi, say so"
        """
        other = f": if it is {_either(self.unless)}, {self.settled_by}" if self.unless else ""
        return f"'{node}' is taken for {self.taken_for}, which is not proved{other}"


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


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


NO_EPSILON: Final = Assumption(
    "a state beside whose gradients no `eps` is felt",
    ("one of gradients near its `eps`, or with decay of its own",),
    "use `--optimizer keep` or `reset`",
)
"""A slot holds updates that were divided by gradients plus an epsilon."""

SAME_ESTIMATE: Final = Assumption(
    "a state whose step size, one estimate for all params, stays what it is",
    ("a share of all params that sets this estimate",),
    "use `--optimizer keep` or `reset`",
)
"""Slots are weighted by an estimate that a factor of some params changes for all of them."""

SAME_SEARCH: Final = Assumption(
    "a state whose line searches end where they did",
    ("searched along other lines with the new params",),
    "use `--optimizer keep` or `reset`",
)

FAR_FROM_START: Final = Assumption(
    "a state that has left its start, `reps_rel` times (1 + the norm of the param), far behind",
    ("still near it",),
    "use `--optimizer keep`",
)


def plain_gradients() -> Assumption:
    """A factory was named, and what stands before it in the chain left no trace on disk."""
    return Assumption(
        "one that gets plain gradients, as the factory that was named",
        (
            "behind an active clip, decay that is added to gradients, centralizing, noise or a trust ratio",
            "one whose scale or trust ratio a mask or a floor keeps from some params",
        ),
        "use `--optimizer keep` or `reset`",
    )


def seen_at(sizes: Iterable[float], not_at: Collection[float]) -> Assumption:
    """A script's optimizer was tried out, and a power holds for gradients of some sizes only."""
    good = " and ".join(f"{size:g}" for size in sizes if size not in not_at)
    bad = " and ".join(f"{size:g}" for size in not_at)
    return Assumption(
        f"one of gradients of about {good}, at which it was tried out",
        (f"one of gradients of about {bad}, where a clip, an epsilon or decay is felt",),
        "use `--optimizer keep`",
    )


def together(every: Iterable[Assumption | None]) -> Assumption | None:
    """All of these at once; None if there is none."""
    found = list(dict.fromkeys(one for one in every if one is not None))
    if len(found) < 2:
        return found[0] if found else None
    return Assumption(
        " and ".join(one.taken_for for one in found),
        tuple(dict.fromkeys(name for one in found for name in one.unless)),
        "; ".join(dict.fromkeys(one.settled_by for one in found)),
    )


def usual_start(setting: str, value: float) -> Assumption:
    """A factory was named, and a setting of it is taken to be optax's own."""
    return Assumption(
        f"a state that starts at {value:g}, optax's default for `{setting}`",
        (f"of a script that sets `{setting}`",),
        "say its start in `slots:` with `fresh:`",
    )
