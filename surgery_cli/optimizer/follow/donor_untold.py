"""Slots of donors of which nothing tells what they hold: why they are not taken, and how the donor comes to tell it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.placeholders import FACTORY, slots_lines
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.clock_agreement import Clocked
from surgery_cli.optimizer.follow.refusals import said_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import joined
from surgery_cli.words.lists import quoted


def untold_there(slots: Sequence[Slot], theirs: Sequence[Slot]) -> dict[LeafPath, Slot]:
    """The trees of a donor of which nothing says what they are, by their nodes, each with the slot called so here."""
    alike = {slot.node[-1]: slot for slot in slots if not slot.is_recognised}
    return {
        other.node: alike[other.node[-1]]
        for other in theirs
        if other.node[-1] in alike and not other.in_optimizer and other.assumed is not None
    }


def why_untold(untold: Mapping[LeafPath, Slot], origin: LeafRef) -> str:
    """Why these trees are not taken, of which ``origin`` is a param."""
    they = f"{quoted(untold, word='and')} there {'is' if len(untold) == 1 else 'are'}"
    return joined("; ", [f"nothing says what {they}", _by_copy(untold, origin)])


def unsaid(pairs: Sequence[tuple[Slot, Slot]], ours: Slot, theirs: Slot, origin: LeafRef) -> str:
    """On which side the kind is not known, and how to say it: options speak of the checkpoint that is edited."""
    here, there = ours.power is None, theirs.power is None
    place = "here and there" if here and there else "here" if here else "there"
    node = ours.node if here else theirs.node
    said = f"which optimizer keeps '{node}' {place} is not known, nor if both are of one kind"
    ways = joined("; or ", ours.settled_by) if here else ""
    if there:
        untold = {other.node: slot for slot, other in pairs if not other.is_recognised}
        copied = _by_copy(untold, origin) if untold and not here else _by_name(origin)
        ways = joined("; and of there, ", filter(None, (ways, copied)))
    return joined("; ", filter(None, (said, ways)))


def counted_apart(clock: Clocked, donor: str) -> str:
    """That a number beside slots here and there is another one, and may be what their steps are counted by."""
    if clock.theirs is None or clock.ours is None:
        return f"whether '{clock.path}' beside them is the same number there is not known"
    numbers = f"{clock.theirs:,.0f} there and {clock.ours:,.0f} here"
    way = taking_the_count(clock.path, clock.there or clock.path, donor)
    unsaid = "nothing says whether it counts their steps"
    return f"'{clock.path}' beside them is {numbers}, and {unsaid}; to take both, {way}"


def taking_the_count(path: LeafPath, there: LeafPath, donor: str) -> str:
    """The edit that takes a number along with params: only a plan can say it where it stands elsewhere there."""
    if path == there:
        return f"`replace` '{path}' from '{donor}' in the same edit"
    words = ", ".join(
        f"{field}: {json.dumps(str(text), ensure_ascii=False)}"
        for field, text in (("at", path), ("with", donor), ("from", there))
    )
    return f"put `{{op: replace, {words}}}` before this edit, in a plan"


def _by_name(origin: LeafRef) -> str:
    """How a copy of the donor comes to say which factory of optax made its state."""
    words = ("rescale", origin.source, "DST", str(origin.path), "--by", "1")
    line = shlex.join((*words, "--optimizer-kind", FACTORY))
    return f"a copy says it in its record: `surgery {line}`, then take them from DST"


def _by_copy(slots: Mapping[LeafPath, Slot], origin: LeafRef) -> str:
    """How a copy of the donor comes to say that its trees are what these slots are here."""
    entries = {str(node): said_of(slot) | _start_of(slot) for node, slot in slots.items()}
    line = shlex.join(("surgery", "apply", origin.source, "DST", "PLAN"))
    edit = f"{{op: rescale, at: {origin.path}, by: 1}}"
    return (
        f"if they are what they are here, a copy says it in its record: `{line}`, where PLAN has {slots_lines(entries)}"
        f" and the edit `{edit}`, then take them from DST"
    )


def _start_of(slot: Slot) -> dict[str, str]:
    return {} if slot.fresh is None else {"fresh": f"{slot.fresh:g}"}
