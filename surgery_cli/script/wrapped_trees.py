"""What one side keeps a level deeper: a tree below a key (`{"state": …}`), or leaves in boxes (`nn.Partitioned`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from surgery_cli.draft.slots import Slot
from surgery_cli.matching.pairs import Certainty
from surgery_cli.script.contract import RAISES, Breach, Subtree, leaf_breach
from surgery_cli.script.findings import Edit, Mend, Slots
from surgery_cli.script.renamed_subtrees import Moves
from surgery_cli.script.renames import after_renames, plain_rename
from surgery_cli.tree.nested import Branch
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec
from surgery_cli.tree.targets import target_text
from surgery_cli.words.lists import listed

_BOX: Final = "value"

_UNBOX: Final = (
    "or let the function take its params out of their boxes: `flax.linen.meta.unbox(params)`"
)
_KEEP_BOX: Final = "or let the function keep its params in their boxes (`nn.Partitioned`)"


def boxed_among(breaches: Sequence[Breach]) -> dict[LeafPath, LeafPath]:
    """Old path to new of leaves that are boxed on one side only."""
    found: dict[LeafPath, LeafPath] = {}
    for breach in breaches:
        if breach.what != "container":
            continue
        inside = breach.path / (_BOX,)
        if _are_one(breach.path, breach.stored, _content(breach.wanted)):
            found[breach.path] = inside
        elif _are_one(breach.path, _content(breach.stored), breach.wanted):
            found[inside] = breach.path
    return found


def _content(node: Subtree | None) -> Subtree | None:
    return node[_BOX] if isinstance(node, Branch) and node.keys() == {_BOX} else None


def _are_one(path: LeafPath, stored: Subtree | None, wanted: Subtree | None) -> bool:
    """True for two leaves of which a restore takes one for the other, dtypes aside."""
    if not isinstance(stored, LeafSpec) or not isinstance(wanted, LeafSpec):
        return False
    breach = leaf_breach(path, stored, wanted)
    return stored.has_array and (breach is None or breach.what == "dtype")


def _rebox(moves: Mapping[LeafPath, LeafPath], stored: Collection[LeafPath]) -> Edit:
    """The edit that puts params into boxes, or takes them out: one pattern where it names no other leaf."""
    old, new = next(iter(moves.items()))
    is_boxed = len(old) > len(new)
    leaves = {path.parent if is_boxed else path for path in moves}
    tops, names = {path[:1] for path in leaves}, sorted({re.escape(str(p[-1])) for p in leaves})
    if len(moves) > 1 and len(tops) == 1 and all(len(path) > 1 for path in leaves):
        last = _BOX if is_boxed else "|".join(names)
        top = re.escape(str(old[0]))
        pattern = f"({top}/.*)/{last}" if is_boxed else f"({top}/(?:.*/)?(?:{last}))"
        exact = re.compile(pattern)
        if {*moves} == {path for path in stored if exact.fullmatch(path.text)}:
            to = r"\1" if is_boxed else rf"\1/{_BOX}"
            return {"op": "rename", "at": f"re:{pattern}", "to": to}
    return plain_rename(moves)


def _without_twins(
    moves: Mapping[LeafPath, LeafPath], slots: Mapping[LeafPath, Slot]
) -> dict[LeafPath, LeafPath]:
    """The moves that no other brings about: slots follow their params."""
    return {
        old: new for old, new in moves.items() if old not in slots or slots[old].param not in moves
    }


def boxed(
    boxes: Moves, breaches: Sequence[Breach], stored: TreeSpec, slots: Slots
) -> tuple[Mend, TreeSpec, Slots]:
    """The finding of all leaves that one side keeps in a box, and the tree and slots after its edit."""
    params = _without_twins(boxes, slots)
    old, new = next(iter(params.items()))
    is_boxed = len(old) > len(new)
    sides = ["in a box (a dict of one `value`)", "bare"]
    parts = tuple(b for b in breaches if b.path in boxes or b.path / ("value",) in boxes)
    top = old[:1] if all(path[:1] == old[:1] for path in params) and len(params) > 1 else old
    mend = Mend(
        path=LeafPath(top),
        what="boxed",
        here=f"{sides[not is_boxed]}: {listed(params, 4)}",
        there=sides[is_boxed],
        effect=RAISES,
        breaches=parts,
        twins=tuple(dict.fromkeys(str(slots[path].node) for path in boxes if path not in params)),
        edits=(_rebox(params, stored),),
        advice=_KEEP_BOX if is_boxed else _UNBOX,
        certainty=Certainty.SURE,
        why=("the same leaf stands in the same place, in a box or not",),
    )
    return mend, *after_renames(params, stored, slots)


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
        place = self.place
        moved = [
            slot.rebased(place, path=place(slot.path), param=place(slot.param))
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
    name = str(wrapping.node)
    at, to = f"{wrapping.node.exact_pattern}/*", r"\1"
    if not wrapping.is_stored:
        at, to = "*", rf"{target_text(wrapping.node)}/\1"
    return Mend(
        path=wrapping.node if wrapping.is_stored else LeafPath(),
        what="renamed",
        here=f"{name}/…" if wrapping.is_stored else "all at the root",
        there="all at the root" if wrapping.is_stored else f"{name}/…",
        effect=RAISES,
        breaches=tuple(parts),
        edits=({"op": "rename", "at": at, "to": to},),
        certainty=Certainty.SURE,
        why=("the keys of the one root stand below one key of the other, and none beside it",),
    )
