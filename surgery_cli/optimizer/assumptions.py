"""What a run takes for granted of a state of the optimizer: neither proved nor said, and not ruled out."""

from __future__ import annotations

from collections.abc import Iterable
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


def usual_start(setting: str, value: float) -> Assumption:
    """A factory was named, and a setting of it is taken to be optax's own."""
    return Assumption(
        f"a state that starts at {value:g}, optax's default for `{setting}`",
        (f"of a script that sets `{setting}`",),
        "say its start in `slots:` with `fresh:`",
    )
