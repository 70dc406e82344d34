"""From breaches of the contract to findings that a person can act on, each with the edit that would mend it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from surgery_cli.matching.subtrees import Former
from surgery_cli.script.contract import Breach, specs_below
from surgery_cli.script.contract import breaches as breaches_of
from surgery_cli.script.findings import Edit, Mend, Slots
from surgery_cli.script.other_optimizers import moves_of_other_fields, other_states, whole_states_of
from surgery_cli.script.remedies import ANOTHER_OPTIMIZER, FRESH, OF_ANOTHER, remedy
from surgery_cli.script.renamed_subtrees import Moves, Reasons, moves_among
from surgery_cli.script.renames import (
    STRUCTURAL,
    after_renames,
    exchange,
    grouped,
    is_plain,
    renamed,
    twins_of,
)
from surgery_cli.script.wrapped_trees import boxed, boxed_among, unwrapped, wrapping_of
from surgery_cli.tree.nested import Branch
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec
from surgery_cli.words.lists import listed


def mends(
    breaches: Sequence[Breach],
    stored: TreeSpec,
    wanted: TreeSpec,
    slots_here: Slots,
    slots_there: Slots,
    former: Former = (),
) -> list[Mend]:
    """Group breaches, and say for each group which edits mend it.

    A subtree that stands under another name is one finding with its old and new path. What happens to a param and,
    alike, to its twins in the optimizer state is one finding too: an edit of the param carries them. ``former`` says
    where leaves stood before earlier edits.
    """
    wrapping = wrapping_of(stored, wanted)
    if wrapping is not None:
        after = stored.mapped(wrapping.place)
        left = breaches_of(after, wanted)
        inside = mends(left, after, wanted, wrapping.slots(slots_here), slots_there, former)
        return [unwrapped(wrapping, breaches, left), *inside]
    boxes = boxed_among(breaches)
    if boxes:
        first, after, slots = boxed(boxes, breaches, stored, slots_here)
        left = breaches_of(after, wanted)
        return [first, *mends(left, after, wanted, slots, slots_there, former)]
    paired, reasons = moves_among(stored, wanted, former)
    apart = other_states(slots_here, slots_there)
    mixed = moves_of_other_fields(paired, slots_here, slots_there)
    moves = {
        old: new
        for old, new in paired.items()
        if old not in mixed
        and not any(node.is_below(state) for node in (old, new) for state in apart)
    }
    plain = {old: new for old, new in moves.items() if is_plain(new, stored)}
    params = {old: new for old, new in plain.items() if old not in twins_of(plain, slots_here)}
    found: list[Mend] = []
    left = list(breaches)
    for series in grouped(params):
        found.append(
            _told(renamed(series, plain, left, slots_here, stored, wanted), series, reasons)
        )
        done = {id(b) for b in found[-1].breaches}
        left = [b for b in left if id(b) not in done]
    if found and any(b.what == "container" for b in left):
        # a rename reaches into what else changed its place: look at that once the names agree
        after, slots = after_renames(params, stored, slots_here)
        return found + mends(breaches_of(after, wanted), after, wanted, slots, slots_there, former)
    structural = {old: new for old, new in moves.items() if old not in plain}
    every = [*slots_here.values(), *slots_there.values()]
    states = {slot.whole_state for slot in every if slot.in_optimizer}
    others = _restructured(structural, left, reasons)
    done = {id(b) for mend in others for b in mend.breaches}
    left = [b for b in left if id(b) not in done]
    of_another = whole_states_of(apart, slots_there)
    others += _with_twins(left, stored, slots_here, slots_there, states, of_another)
    order = {id(b): number for number, b in enumerate(breaches)}
    found += sorted(others, key=lambda mend: min(order[id(b)] for b in mend.breaches))
    return [_with_what_is_new(mend, moves, states) for mend in found]


def _told(mend: Mend, moves: Moves, reasons: Reasons) -> Mend:
    """The finding with how sure it is, and why."""
    first, *others = (reasons[node] for node in moves)
    for other in others:
        first = first.beside(other)
    return msgspec.structs.replace(mend, certainty=first.certainty, why=first.why)


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
        there=f"{mend.there}, and new: {listed(new, 4)}",
        advice=ANOTHER_OPTIMIZER if is_optimizer else FRESH,
    )


# --- other orders of a chain, layers that were wrapped -------------------------------------------------------


def _restructured(moves: Moves, breaches: Sequence[Breach], reasons: Reasons) -> list[Mend]:
    """One finding for each part of the tree whose nodes must change places."""
    found = []
    for top in dict.fromkeys(old[:1] for old in moves):
        own = {old: new for old, new in moves.items() if old[:1] == top}
        parts = tuple(b for b in breaches if b.path[:1] == top and b.what in STRUCTURAL)
        if not parts:
            continue
        edits = exchange(own, parts)
        mend = Mend(
            path=parts[0].path if len(parts) == 1 else LeafPath(top),
            what="moved",
            here=listed(own, 4),
            there=listed(own.values(), 4),
            effect=parts[0].effect,
            breaches=parts,
            edits=edits,
        )
        found.append(_told(mend, own, reasons))
    return found


# --- everything else -----------------------------------------------------------------------------------------


def _with_twins(
    breaches: Sequence[Breach],
    stored: TreeSpec,
    slots_here: Slots,
    slots_there: Slots,
    states: Collection[LeafPath],
    of_another: Collection[LeafPath],
) -> list[Mend]:
    """A finding for each breach; one that its params share with it stands in the params' finding.

    ``of_another``: the whole states of which the script has another optimizer's.
    """
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
        if breach.what in STRUCTURAL and any(breach.path.is_below(state) for state in of_another):
            mending: tuple[Edit, ...] = ()
            said = OF_ANOTHER
        else:
            mending, said = remedy(breach, breaches, stored, slots_here, states)
        found.append(
            Mend(
                path=breach.path,
                what=breach.what,
                here=breach.here,
                there=breach.there,
                effect=breach.effect,
                breaches=(breach, *twins),
                twins=tuple(str(twin.path) for twin in twins),
                edits=mending,
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
