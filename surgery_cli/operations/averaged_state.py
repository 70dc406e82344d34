"""What an average makes of numbers and counters that an optimizer keeps beside its slots."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import Scene
from surgery_cli.operations.members import MOST_NAMED, Member
from surgery_cli.operations.nonnegative import in_optimizer_state
from surgery_cli.optimizer.follow.clocks import NEEDS_SLOTS
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence


def state_notes(
    averaged: Collection[LeafPath],
    named: Sequence[str],
    others: Sequence[Member],
    draft: Draft,
    scene: Scene,
) -> Iterator[Consequence]:
    """Settings and sums of the optimizer that are averaged with its slots, and counters that are not.

    ``averaged`` are the leaves that have become means, and ``named`` the patterns that name them: what one of them
    spells out is not said. Numbers that are equal in all members are not said either, as far as they can be read.
    """
    if not any(in_optimizer_state(path, draft) for path in averaged):
        return
    numbers = [
        _apart(path, others, draft, scene)
        for path in averaged
        if path not in draft.slots and in_optimizer_state(path, draft)
        if str(path) not in named
    ]
    if any(numbers):
        said = "these numbers of the optimizer's own are averaged, too"
        yield Consequence(
            worded(
                "{}: {}; {except} leaves them out", said, listed(filter(None, numbers), MOST_NAMED)
            )
        )
    counters = [
        _apart(path, others, draft, scene)
        for path in draft.leaves
        if path not in averaged
        and (clock := draft.clock_at(path)) is not None
        and clock.drives not in NEEDS_SLOTS
    ]
    if any(counters):
        said = "these counters are not averaged, and stay as the source has them"
        yield Consequence(f"{said}: {listed(filter(None, counters), MOST_NAMED)}")


def _apart(path: LeafPath, others: Sequence[Member], draft: Draft, scene: Scene) -> str:
    """The path with the numbers that stand there, the source's first; '' if all are equal."""
    refs = [draft.leaves[path].home]
    refs += [LeafRef(other.name, path) if path in other.tree else None for other in others]
    is_number = draft.leaves[path].spec.size == 1
    values = [scene.number(ref) if ref is not None and is_number else None for ref in refs]
    if None in values:
        return f"'{path}'"
    shown = ", ".join(f"{value:,.6g}" for value in values)
    return f"'{path}' ({shown})" if len(set(values)) > 1 else ""
