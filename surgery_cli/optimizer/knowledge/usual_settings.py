"""The defaults of the numbers that optax's factories take, for a state of which the factory is known, or not."""

from __future__ import annotations

import math
from typing import NamedTuple

from surgery_cli.optimizer.knowledge.defaults import DEFAULTS
from surgery_cli.optimizer.knowledge.factories import every_factory_of


class Usual(NamedTuple):
    """The default of a setting; not sure where other factories that make such a state have another one."""

    number: float
    is_sure: bool


def usual_setting(name: str, kinds: tuple[str, ...], factory: str = "") -> Usual | None:
    """The default of a setting of a state of one of ``kinds``; None if it has none.

    ``factory`` is the one that the user named: it alone counts. Else the usual ones have the say, and where it may be
    a state of Adam, it is taken for one.

    >>> usual_setting("eps", ("adam",), "lamb"), usual_setting("threshold", ("adam", "adopt"))
    (Usual(number=1e-06, is_sure=True), Usual(number=5.0, is_sure=True))
    >>> usual_setting("eps", ("adam",)), usual_setting("weight_decay", ("adam",), "adam")
    (Usual(number=1e-08, is_sure=False), None)
    """
    if "adam" in kinds:
        kinds = ("adam",)
    makers = [factory] if factory else every_factory_of(kinds)
    found = [defaults[name] for maker in makers if name in (defaults := DEFAULTS.get(maker, {}))]
    return Usual(found[0], len(set(found)) == 1) if found else None


def is_usual_elsewhere(name: str, number: float, kinds: tuple[str, ...]) -> bool:
    """True if some factory whose state may be one of these kinds has this number as the default of a setting.

    >>> is_usual_elsewhere("eps_root", 1e-16, ("adam", "adabelief")), is_usual_elsewhere("eps_root", 1e-16, ("adam",))
    (True, False)
    """
    found = (DEFAULTS.get(maker, {}).get(name, math.nan) for maker in every_factory_of(kinds))
    return any(
        math.isclose(number, one, rel_tol=1e-6) for one in found
    )  # it is stored as a float32
