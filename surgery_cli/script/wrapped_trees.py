"""Trees of which one stands whole below a key of the other: saved as ``{"state": state}``, or params alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from surgery_cli.draft.slots import Slot
from surgery_cli.script.contract import RAISES, Breach
from surgery_cli.script.findings import Mend
from surgery_cli.script.rename_edits import literal, spelled
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import TreeSpec


class Wrapping(msgspec.Struct, frozen=True):
    """What stands below ``node`` on one side is the root of the other; ``is_stored`` if the checkpoint has it there."""

    node: LeafPath
    is_stored: bool

    def place(self, path: LeafPath) -> LeafPath:
        """Where a leaf of the checkpoint, or a node, stands once both sides have the same root."""
        if not self.is_stored:
            return self.node / path
        return LeafPath(path[len(self.node) :]) if path.is_below(self.node) else path

    def moves(self, path: LeafPath) -> bool:
        """True if the leaf of the checkpoint gets another place."""
        return not self.is_stored or path.is_below(self.node)

    def slots(self, slots: Mapping[LeafPath, Slot]) -> dict[LeafPath, Slot]:
        """The slots as they stand then."""
        fields = ("path", "param", "node", "root")
        moved = [
            msgspec.structs.replace(slot, **{f: self.place(getattr(slot, f)) for f in fields})
            for slot in slots.values()
        ]
        return {slot.path: slot for slot in moved}


def wrapping_of(stored: TreeSpec, wanted: TreeSpec) -> Wrapping | None:
    """The only key of one side below which stand the keys of the other's root, and none of them beside it."""
    found = [Wrapping(LeafPath((key,)), True) for key in _holders(stored, wanted)]
    found += [Wrapping(LeafPath((key,)), False) for key in _holders(wanted, stored)]
    return found[0] if len(found) == 1 else None


def _holders(outer: TreeSpec, inner: TreeSpec) -> list[Key]:
    roots = {path[0] for path in inner if path}
    below: dict[Key, set[Key]] = {}
    for path in filter(None, outer):
        below.setdefault(path[0], set()).update(path[1:2])
    if roots & below.keys() or any(isinstance(key, int) for key in roots):
        return []
    return [key for key, keys in below.items() if keys == roots]


def unwrapped(wrapping: Wrapping, breaches: Sequence[Breach], left: Sequence[Breach]) -> Mend:
    """The finding that all stands one key too deep, or not deep enough."""
    unfilled = {leaf for b in left if b.what == "missing" for leaf in b.leaves}
    parts = []
    for breach in breaches:
        if breach.what == "missing":
            leaves = tuple(leaf for leaf in breach.leaves if leaf not in unfilled)
        else:
            leaves = tuple(leaf for leaf in breach.leaves if wrapping.moves(leaf))
        if leaves:
            parts.append(msgspec.structs.replace(breach, leaves=leaves))
    name = spelled(wrapping.node)
    at, to = f"{literal(wrapping.node)}/*", r"\1"
    if not wrapping.is_stored:
        at, to = "*", rf"{name}/\1"
    return Mend(
        path=wrapping.node if wrapping.is_stored else LeafPath(),
        what="renamed",
        here=f"{name}/…" if wrapping.is_stored else "all at the root",
        there="all at the root" if wrapping.is_stored else f"{name}/…",
        effect=RAISES,
        breaches=tuple(parts),
        edits=({"op": "rename", "at": at, "to": to},),
    )
