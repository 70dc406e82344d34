"""What a person is told of breaches of the contract: which leaves, what a restore makes of them, what mends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from surgery_cli.draft.slots import Slot
from surgery_cli.script.contract import Breach
from surgery_cli.tree.paths import LeafPath

Slots: TypeAlias = Mapping[LeafPath, Slot]

Edit: TypeAlias = dict[str, Any]
"""An edit as it stands in a plan."""


class Mend(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: what is wrong, the breaches of which it consists, and the edits that would mend it.

    ``name`` is how a series of nodes is shown, of which ``path`` is the first. ``twins`` are nodes of the optimizer
    state that have the same fault and follow the edit. ``nodes`` are those that get another name, twins included.
    ``advice`` is for what no edit can mend, or what else would. Where something is taken for what stands elsewhere,
    ``certainty`` and ``why`` say how sure that is.
    """

    path: LeafPath
    name: str = ""
    what: str
    here: str
    there: str
    effect: str
    breaches: tuple[Breach, ...]
    twins: tuple[str, ...] = ()
    nodes: tuple[LeafPath, ...] = ()
    edits: tuple[Edit, ...] = ()
    advice: str = ""
    certainty: str = ""
    why: tuple[str, ...] = ()

    @property
    def leaves(self) -> int:
        """How many leaves are concerned, twins included; what stands elsewhere counts once."""
        there = {leaf for b in self.breaches if b.what == "missing" for leaf in b.leaves}
        here = {leaf for b in self.breaches if b.what != "missing" for leaf in b.leaves}
        if self.nodes:
            here = {leaf for leaf in here if any(leaf.is_below(node) for node in self.nodes)}
        if self.what in ("renamed", "moved"):
            return len(here or there)
        return len(here) + len(there)
