"""From breaches of the contract to findings that a person can act on, each with the edit that would mend it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.verification.advice import ANOTHER_OPTIMIZER, FRESH, advice, optimizer_states
from surgery_cli.verification.contract import RAISES, Branch, Breach, sort_of, specs_below
from surgery_cli.verification.contract import breaches as breaches_of
from surgery_cli.verification.exchanges import Edit, exchange, literal, spelled
from surgery_cli.verification.moves import Moves, moves_among
from surgery_cli.verification.wrapping import Wrapping, wrapping_of

Slots: TypeAlias = Mapping[LeafPath, Slot]


class Mend(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: what is wrong, the breaches of which it consists, and the edits that would mend it.

    ``twins`` are nodes of the optimizer state that have the same fault and follow the edit. ``advice`` is for what no
    edit can mend.
    """

    path: LeafPath
    what: str
    here: str
    there: str
    effect: str
    breaches: tuple[Breach, ...]
    twins: tuple[LeafPath, ...] = ()
    edits: tuple[Edit, ...] = ()
    advice: str = ""

    @property
    def leaves(self) -> int:
        """How many leaves are concerned, twins included; what stands elsewhere counts once."""
        there = {leaf for b in self.breaches if b.what == "missing" for leaf in b.leaves}
        here = {leaf for b in self.breaches if b.what != "missing" for leaf in b.leaves}
        if self.what == "renamed":
            nodes = (self.path, *self.twins)
            here = {leaf for leaf in here if any(leaf.is_below(node) for node in nodes)}
        if self.what in ("renamed", "moved"):
            return len(here or there)
        return len(here) + len(there)


def mends(
    breaches: Sequence[Breach],
    stored: TreeSpec,
    wanted: TreeSpec,
    slots_here: Slots,
    slots_there: Slots,
) -> list[Mend]:
    """Group breaches, and say for each group which edits mend it.

    A subtree that stands under another name is one finding with its old and new path. What happens to a param and,
    alike, to its twins in the optimizer state is one finding too: an edit of the param carries them.
    """
    wrapping = wrapping_of(stored, wanted)
    if wrapping is not None:
        after = stored.mapped(wrapping.place)
        left = breaches_of(after, wanted)
        inside = mends(left, after, wanted, wrapping.slots(slots_here), slots_there)
        return [_unwrapped(wrapping, breaches, left), *inside]
    moves = moves_among(breaches, stored, wanted)
    plain = {old: new for old, new in moves.items() if _is_plain(new, stored)}
    params = {old: new for old, new in plain.items() if old not in _twins_of(plain, slots_here)}
    found: list[Mend] = []
    left = list(breaches)
    for old, new in params.items():
        found.append(_renamed(old, new, plain, left, slots_here))
        done = {id(b) for b in found[-1].breaches}
        left = [b for b in left if id(b) not in done]
    if found and any(b.what == "container" for b in left):
        # a rename reaches into what else changed its place: look at that once the names agree
        after, slots = _after(params, stored, slots_here)
        return found + mends(breaches_of(after, wanted), after, wanted, slots, slots_there)
    structural = {old: new for old, new in moves.items() if old not in plain}
    states = optimizer_states(slots_here, slots_there)
    others = _restructured(structural, left)
    done = {id(b) for mend in others for b in mend.breaches}
    left = [b for b in left if id(b) not in done]
    others += _with_twins(left, stored, slots_here, slots_there, states)
    order = {id(b): number for number, b in enumerate(breaches)}
    found += sorted(others, key=lambda mend: min(order[id(b)] for b in mend.breaches))
    return [_with_what_is_new(mend, moves, states) for mend in found]


def _unwrapped(wrapping: Wrapping, breaches: Sequence[Breach], left: Sequence[Breach]) -> Mend:
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


def _with_what_is_new(mend: Mend, moves: Moves, states: Collection[LeafPath]) -> Mend:
    """The finding of what moved, with what the script has beside it and the checkpoint nowhere."""
    if mend.what not in ("renamed", "moved"):
        return mend
    new = []
    for breach in mend.breaches:
        if not isinstance(breach.wanted, Branch):
            continue
        for key, child in breach.wanted.items():
            node = breach.path / (key,)
            lacking = [
                leaf
                for leaf, spec in specs_below(child).items()
                if spec.kind is not LeafKind.EMPTY
                and not any((node / leaf).is_below(goal) for goal in moves.values())
            ]
            if lacking:
                new.append(node)
    if not new:
        return mend
    is_optimizer = any(mend.path.is_below(state) for state in states)
    return msgspec.structs.replace(
        mend,
        there=f"{mend.there}, and new: {_listed(new)}",
        advice=ANOTHER_OPTIMIZER if is_optimizer else FRESH,
    )


def _after(moves: Moves, stored: TreeSpec, slots: Slots) -> tuple[TreeSpec, Slots]:
    """The tree and its slots as renames leave them: slots follow their params."""
    places: dict[LeafPath, LeafPath] = {}
    params: dict[LeafPath, LeafPath] = {}
    for old, new in moves.items():
        for path in stored:
            if path.is_below(old):
                places[path] = new / path[len(old) :]
        for path, slot in slots.items():
            if slot.param.is_below(old):
                params[path] = new / slot.param[len(old) :]
                places[path] = slot.place_for(params[path]) or path
    moved = {
        places.get(path, path): msgspec.structs.replace(
            slot, path=places.get(path, path), param=params.get(path, slot.param)
        )
        for path, slot in slots.items()
    }
    return stored.mapped(lambda path: places.get(path, path)), moved


def _is_plain(new: LeafPath, stored: TreeSpec) -> bool:
    """True if a rename needs no other place to be made free: nothing stands at, above or below the new path."""
    above = (LeafPath(new[:depth]) for depth in range(1, len(new) + 1))
    return new not in stored.nodes and not any(node in stored for node in above)


def _twins_of(moves: Moves, slots: Slots) -> set[LeafPath]:
    """Those of the moved nodes whose leaves all are slots of params that move alike."""
    return {old for old in moves if _leader(old, moves, slots) is not None}


def _leader(node: LeafPath, moves: Moves, slots: Slots) -> LeafPath | None:
    """The moved node of params to which all slots below ``node`` belong."""
    params = {slot.param for path, slot in slots.items() if path.is_below(node)}
    for other in moves:
        if other != node and params and all(param.is_below(other) for param in params):
            return other
    return None


def _renamed(
    old: LeafPath, new: LeafPath, moves: Moves, breaches: Sequence[Breach], slots: Slots
) -> Mend:
    followers = [o for o in moves if o != old and _leader(o, moves, slots) == old]
    pairs = [(old, new), *((other, moves[other]) for other in followers)]
    parts = tuple(b for b in breaches if b.what in _STRUCTURAL and _is_settled(b, moves, pairs))
    return Mend(
        path=old,
        what="renamed",
        here=str(old),
        there=str(new),
        effect=RAISES,
        breaches=parts,
        twins=tuple(followers),
        edits=({"op": "rename", "at": literal(old), "to": spelled(new)},),
    )


def _is_settled(breach: Breach, moves: Moves, pairs: Sequence[tuple[LeafPath, LeafPath]]) -> bool:
    """True if all leaves of a breach are moved away, or filled by moves, one of ``pairs`` among them."""
    side = 1 if breach.what == "missing" else 0
    ends = moves.values() if side else moves.keys()
    return any(leaf.is_below(pair[side]) for leaf in breach.leaves for pair in pairs) and all(
        any(leaf.is_below(end) for end in ends) for leaf in breach.leaves
    )


# --- other orders of a chain, layers that were wrapped -------------------------------------------------------


def _restructured(moves: Moves, breaches: Sequence[Breach]) -> list[Mend]:
    """One finding for each part of the tree whose nodes must change places."""
    found = []
    for top in dict.fromkeys(old[:1] for old in moves):
        own = {old: new for old, new in moves.items() if old[:1] == top}
        parts = tuple(b for b in breaches if b.path[:1] == top and b.what in _STRUCTURAL)
        if not parts:
            continue
        edits = exchange(own, parts)
        found.append(
            Mend(
                path=parts[0].path if len(parts) == 1 else LeafPath(top),
                what="moved",
                here=_listed(own),
                there=_listed(own.values()),
                effect=parts[0].effect,
                breaches=parts,
                edits=edits,
            )
        )
    return found


_STRUCTURAL: Final = ("extra", "missing", "container")


# --- everything else -----------------------------------------------------------------------------------------


def _with_twins(
    breaches: Sequence[Breach],
    stored: TreeSpec,
    slots_here: Slots,
    slots_there: Slots,
    states: Collection[LeafPath],
) -> list[Mend]:
    """A finding for each breach; one that its params share with it stands in the params' finding."""
    leaders: dict[int, Breach] = {}
    by_leaf = {(leaf, b.what): b for b in breaches for leaf in b.leaves}
    for breach in breaches:
        slots = slots_there if breach.what == "missing" else slots_here
        leader = _leading(breach, slots, by_leaf)
        if leader is not None:
            leaders[id(breach)] = leader
    found = []
    for breach in breaches:
        if id(breach) in leaders:
            continue
        twins = tuple(b for b in breaches if leaders.get(id(b)) is breach)
        edits, said = _remedy(breach, stored, slots_here, states)
        found.append(
            Mend(
                path=breach.path,
                what=breach.what,
                here=breach.here,
                there=breach.there,
                effect=breach.effect,
                breaches=(breach, *twins),
                twins=tuple(twin.path for twin in twins),
                edits=edits,
                advice=said,
            )
        )
    return found


def _leading(
    breach: Breach, slots: Slots, by_leaf: Mapping[tuple[LeafPath, str], Breach]
) -> Breach | None:
    """The one breach of the same sort to which the params of all its leaves belong."""
    if breach.what not in ("extra", "missing", "shape"):
        return None
    params = [slots[leaf].param if leaf in slots else None for leaf in breach.leaves]
    leaders = [by_leaf.get((param, breach.what)) if param else None for param in params]
    first = leaders[0] if leaders else None
    if first is None or first is breach or any(leader is not first for leader in leaders):
        return None
    return first


def _remedy(
    breach: Breach, stored: TreeSpec, slots: Slots, states: Collection[LeafPath]
) -> tuple[tuple[Edit, ...], str]:
    """The edits that mend a breach, and advice where none does."""
    wanted, here = breach.wanted, breach.stored
    if breach.what == "extra":
        return (_deletion(breach, slots),), _PARTIAL
    if breach.what == "dtype":
        return _cast(breach, stored)
    if breach.what == "shape" and isinstance(here, LeafSpec) and isinstance(wanted, LeafSpec):
        if sorted(here.shape) == sorted(wanted.shape):
            return (), "the axes stand in another order: transpose the values, or the model's"
        return (), (
            f"build the model with {list(here.shape)}, or let the restore skip this leaf and start it fresh"
        )
    return (), advice(breach, states)


def _deletion(breach: Breach, slots: Slots) -> Edit:
    """The edit that takes a subtree out: of a field of the optimizer state, a part goes only if it is named so."""
    edit: Edit = {"op": "delete", "at": literal(breach.path)}
    nodes = {slots[leaf].node for leaf in breach.leaves if leaf in slots}
    if any(breach.path != node and breach.path.is_below(node) for node in nodes):
        edit["twins"] = "named"
    return edit


def _cast(breach: Breach, stored: TreeSpec) -> tuple[tuple[Edit, ...], str]:
    here, there = breach.stored, breach.wanted
    assert isinstance(here, LeafSpec)
    assert isinstance(there, LeafSpec)
    otherwise = f"let the script's function give {here.dtype}, or restore and convert knowingly"
    arrays = (LeafKind.ARRAY, LeafKind.NUMPY)
    if (
        here.kind not in arrays
        or there.kind not in arrays
        or sort_of(here.dtype) != sort_of(there.dtype)
    ):
        return (), otherwise
    edit: Edit = {"op": "cast", "at": literal(breach.path), "to": there.dtype}
    others = (p for p in stored if p.is_below(breach.path) and p not in breach.leaves)
    is_integer = sort_of(here.dtype) == "integer"
    if is_integer or any(stored[path].has_array for path in others):
        edit["where_dtype"] = here.dtype
    return (edit,), ""


_PARTIAL: Final = "or let the function return it too"


def _listed(paths: Iterable[LeafPath]) -> str:
    found = [str(path) for path in paths]
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
