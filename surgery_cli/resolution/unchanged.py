"""What is said of edits that change nothing: they are right as they stand, and perhaps not what was meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.operations.base import Operation
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import leaves_text


def is_unchanged(before: Draft, after: Draft, changed: Mapping[LeafPath, Output]) -> bool:
    """True if all leaves are what they were; those are other outputs that an edit has ``changed``, if only in name."""
    return (
        all(p in before.leaves and _is_same(out, before.leaves[p]) for p, out in changed.items())
        and before.items == after.items
        and list(before.leaves) == list(after.leaves)
    )


def _is_same(one: Output, other: Output) -> bool:
    if one.is_resharded != other.is_resharded:
        return False
    return one.recipe is other.recipe or (
        isinstance(one.recipe, Stored) and one.recipe == other.recipe
    )


def idle_notes(
    edit: Operation, named: Collection[LeafPath] | None, number: int | None
) -> Iterator[Consequence]:
    """That an edit changes nothing, though it names leaves; what only looks is not meant to change any.

    ``number``: which one of several edits it is.
    """
    if edit.writes and named:
        one = f"'{next(iter(named))}' is already as it would have it"
        many = f"{leaves_text(len(named))} are already as it would have them"
        said = f"`{edit.name}` changes nothing: {one if len(named) == 1 else many}"
        front = "" if number is None else f"edit {number}, "
        yield Consequence(DocsPage.OPERATIONS, front + said)


def idle_together(draft: Draft) -> Iterator[Consequence]:
    """That several edits come to nothing, of which each changes what another makes."""
    are_at_work = sum(not outcome.is_idle for outcome in draft.outcomes) > 1
    if are_at_work and not draft.changed and not draft.removed:
        said = (
            "the edits together change nothing: each leaf is what it was before the first of them"
        )
        yield Consequence(DocsPage.OPERATIONS, said)
