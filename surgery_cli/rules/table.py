"""The one table that lists the rules; the fields of `assert`, its command, docs and schema are read from it."""

from __future__ import annotations

from typing import Final

from surgery_cli.rules.consecutive import Consecutive
from surgery_cli.rules.contract import Rule
from surgery_cli.rules.digests import DigestsOf
from surgery_cli.rules.equality import EqualIn, EqualTo, Unchanged
from surgery_cli.rules.finite import Finite
from surgery_cli.rules.likeness import Alike
from surgery_cli.rules.measures import Absmax, Norm, Std, Zeros
from surgery_cli.rules.metadata import Dtype, Shape
from surgery_cli.rules.mirroring import OptimizerMirrorsParams
from surgery_cli.rules.presence import Count, Exists
from surgery_cli.rules.structure import SameStructureAs

RULES: Final[tuple[type[Rule], ...]] = (
    Exists,
    Count,
    Alike,
    Consecutive,
    Shape,
    Dtype,
    Finite,
    Norm,
    Absmax,
    Std,
    Zeros,
    EqualTo,
    EqualIn,
    Unchanged,
    SameStructureAs,
    OptimizerMirrorsParams,
    DigestsOf,
)
"""In the order in which they are documented."""
