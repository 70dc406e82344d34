"""What an average makes of numbers and counters that an optimizer keeps beside its slots."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.members import MOST_NAMED, Member
from surgery_cli.operations.nonnegative import in_optimizer_state
from surgery_cli.optimizer.follow.clocks import NEEDS_SLOTS
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def state_notes(
    averaged: Collection[LeafPath],
    edit: Operation,
    others: Sequence[Member],
    draft: Draft,
    scene: Scene,
) -> Iterator[Consequence]:
    """Settings and sums of the optimizer that are averaged with its slots, and what is not averaged with the rest.

    ``averaged`` are the leaves that ``edit`` has made means: what one of its patterns spells out is not said. Numbers
    that are equal in all members are not said either, as far as they can be read.
    """
    with_state = any(in_optimizer_state(path, draft) for path in averaged)
    numbers = [
        _apart(path, others, draft, scene)
        for path in averaged
        if path not in draft.slots
        and (in_optimizer_state(path, draft) or draft.clock_at(path) is not None)
        if path.text not in edit.patterns
    ]
    if any(numbers):
        said = "these counters and numbers beside the slots are averaged, too"
        yield Consequence(
            DocsPage.AVERAGES,
            worded(
                "{}: {}; {except} leaves them out", said, listed(filter(None, numbers), MOST_NAMED)
            ),
        )
    excluded = scene.select(edit, draft).excluded if edit.exceptions else ()
    left = [
        _apart(path, others, draft, scene)
        for path, output in draft.leaves.items()
        if _is_left(path, output, draft, edit, with_state=with_state)
        and path not in averaged
        and path not in excluded
    ]
    if any(left):
        said = "these are not averaged, and stay as the source has them"
        yield Consequence(DocsPage.AVERAGES, f"{said}: {listed(filter(None, left), MOST_NAMED)}")


def _is_left(
    path: LeafPath, output: Output, draft: Draft, edit: Operation, *, with_state: bool
) -> bool:
    """True for what somebody may take for averaged: counters beside averaged slots; of a whole tree, everything."""
    clock = draft.clock_at(path)
    if clock is not None and clock.drives in NEEDS_SLOTS:
        return False  # it is compared by itself
    is_whole = not (edit.patterns or edit.where_dtype) and edit.where_ndim is None
    is_other = output.spec.kind is not LeafKind.EMPTY and not edit.selectable(output.spec)
    return (with_state and clock is not None) or (is_whole and is_other)


def _apart(path: LeafPath, others: Sequence[Member], draft: Draft, scene: Scene) -> str:
    """The path with the numbers that stand there, the source's first; '' if all are equal."""
    refs = [draft.leaves[path].home]
    refs += [LeafRef(other.name, path) if path in other.tree else None for other in others]
    spec = draft.leaves[path].spec
    is_number = spec.size == 1 and spec.kind not in (LeafKind.KEY, LeafKind.STRING)
    values = [scene.number(ref) if ref is not None and is_number else None for ref in refs]
    if None in values:
        return f"'{path}' ({spec.type_text})"
    shown = ", ".join(f"{value:,.6g}" for value in values)
    return f"'{path}' ({shown})" if len(set(values)) > 1 else ""
