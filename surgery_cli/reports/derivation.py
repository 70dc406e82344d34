"""What `derive` prints: the pairs, what is left, and the plan."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.document import Noted
from surgery_cli.proof.record_parts import Assumed


class PairRow(msgspec.Struct, kw_only=True, frozen=True):
    """Leaves of A, and what they are in B; those of numbered layers stand in one row."""

    from_: str = msgspec.field(name="from")
    """As a pattern: ``model.layers.{0..11}.mlp.up_proj.weight``."""
    to: str
    leaves: int
    """How many leaves of B they make; 0 for what is cut, or put together, whose parts are rows of their own."""
    operations: list[str]
    """What is done to them, in words; a rename alone is not said."""
    certainty: str
    """``sure``, ``likely`` or ``guess``; a guess is no part of the plan."""
    why: list[str]


class Gap(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What the plan leaves open: a leaf of the one side without the other, or what is not as it should be."""

    path: str
    side: str
    """``a``: a leaf of A, as the plan leaves it, that B has not; ``b``: a leaf of B that nothing becomes."""
    what: str
    leaves: int
    nodes: int = 1
    """How many such nodes ``path`` means, where it is a pattern; each has as many leaves."""
    type: str = ""
    perhaps: list[str] = []
    """What it may be on the other side, no more than guessed."""
    fix: str = ""


class Derivation(Noted, kw_only=True, frozen=True):
    """What ``derive`` prints: as text the plan alone on standard output, all the rest on standard error."""

    a: str
    b: str
    chosen_a: str = ""
    chosen_b: str = ""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
    pairs: list[PairRow]
    guesses: list[PairRow]
    gaps: list[Gap]
    same: int
    """Leaves that are the same on both sides, place and type, and of which the plan says nothing."""
    plan: dict[str, Any]
    steps: list[list[int]]
    """For each edit of the plan the rows in ``pairs`` for whose sake it is there."""
    values: str
    """``compared``, ``nothing in common``, or ``not read``."""
    bytes_read: int

    @property
    def is_whole(self) -> bool:
        """True if the plan makes the tree of B."""
        return not self.gaps
