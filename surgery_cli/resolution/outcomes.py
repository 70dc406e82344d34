"""What an edit did, for the preview: leaves that it named, twins that followed, bytes of new values; what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from surgery_cli.draft.assumptions import Assumption
from surgery_cli.draft.effect import Effect, Keeps, Masks, Rearranges, moves_alone
from surgery_cli.draft.recipe import Draft, EditOutcome, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem, raise_all
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_SHOWN_PATHS: Final = 8


def with_outcome(
    after: Draft,
    before: Draft,
    changed: Mapping[LeafPath, Output],
    named: Collection[LeafPath] | None,
    effect: Effect | None = None,
) -> Draft:
    """``after`` with one more outcome: its difference to ``before``, whose leaves are other ones where ``changed``.

    ``named``: what the edit's patterns select; None if it selects nothing, but puts leaves somewhere. ``effect``: that
    of an edit of values.

    Raises:
        PlanError: a tree that is like the params, and may be no copy of them, would get new values as one.
    """
    chosen = set(changed if named is None else named)
    twins: Counter[str] = Counter()
    staying: set[int] = set()
    moving: set[int] = set()
    if not changed.keys() <= before.leaves.keys():
        moving = {id(out) for out in before.leaves.values()}
        staying = {id(out) for path, out in before.leaves.items() if after.leaves.get(path) is out}
    changed_bytes = 0
    assumed: dict[tuple[LeafPath, Assumption], None] = {}
    unsaid: dict[LeafPath, Problem] = {}
    for path, recipe in changed.items():
        old = before.leaves.get(path)
        is_new = bool(recipe.edits) and not recipe.is_by_reference
        if is_new if old is None else _has_new_values(recipe, old):
            changed_bytes += recipe.spec.bytes
        if path not in after.slots:
            continue
        is_old = old is None and id(recipe) in moving
        if path not in chosen:
            arrived = "copied" if id(recipe) in staying else "moved"
            twins[(arrived if is_old else recipe.policy) or "moved"] += 1
        if not is_old:
            slot = after.slots[path]
            if not slot.in_optimizer:
                if path not in chosen and (copy := _of_copy(slot, recipe)) is not None:
                    unsaid.setdefault(slot.node, _unsaid_copy(slot, copy))
            elif (taken := _assumption(slot, recipe.policy, effect)) is not None:
                assumed[slot.state, taken] = None
    raise_all(unsaid.values())
    if effect is None:  # else they are a part of others
        twins["deleted"] = len(_gone(before, after) - chosen)
    told = {policy: n for policy, n in twins.items() if n}
    is_idle = not changed and len(after.leaves) == len(before.leaves)
    outcome = EditOutcome(len(chosen), told, changed_bytes, tuple(assumed), is_idle)
    return after.replaced(outcomes=(*after.outcomes, outcome))


def _gone(before: Draft, after: Draft) -> set[LeafPath]:
    """The slots that stand nowhere any more, where others may have come to stand, as elements of a list move up."""
    if after.leaves is before.leaves:
        return set()
    still, known = ({id(out) for out in each.leaves.values()} for each in (after, before))
    return {
        path
        for path in before.slots.keys() & before.leaves.keys()
        if id(before.leaves[path]) not in still
        and (path not in after.leaves or id(after.leaves[path]) in known)
    }


def said_of(note: str, named: Collection[LeafPath] | None) -> Iterator[Remark]:
    """The edit's own remark with the leaves that it is about; nothing of an edit that has found none."""
    if note and (named is None or named):
        of = f": {quoted(folded(map(str, named)), _SHOWN_PATHS)}" if named else ""
        yield Remark(DocsPage.FIELDS, f"{note}{of}")


def _has_new_values(leaf: Output, old: Output) -> bool:
    """True if edits gave the leaf other values; where they come to nothing, it is what it was."""
    return leaf.edits is not old.edits and leaf.recipe is not old.recipe


def _of_copy(slot: Slot, leaf: Output) -> Assumption | None:
    """What a tree beside the optimizer state is taken for that was edited like its params: new values tell."""
    last = next(
        (one.effect for one in reversed(leaf.edits) if not isinstance(one.effect, Keeps)), None
    )
    is_same = leaf.policy != "carried" or (last is not None and moves_alone(last))
    return None if is_same else slot.assumed


def _unsaid_copy(slot: Slot, taken: Assumption) -> Problem:
    """A tree would get what a copy of the params gets, which makes no moments: squares become negative."""
    return Problem(
        f"'{slot.node}' would get new values as a copy of '{slot.root}', and nothing says that it is one",
        why="it has the names and shapes of params, and so have the moments of an optimizer; in squares, values of"
        " both signs make the next step NaN",
        fix=taken.settled_by,
        path=str(slot.node),
        field="slots",
    )


def _assumption(slot: Slot, policy: str, effect: Effect | None) -> Assumption | None:
    """What a slot that follows by this policy is taken for without proof."""
    if isinstance(effect, Masks) and policy in ("transform", "reset"):
        stays = slot.is_second_moment and policy == "transform"
        return None if stays else slot.fresh_assumed
    if isinstance(effect, Rearranges) and policy != "reset":
        return None  # whatever it is, its elements move
    if policy in ("transform", "carried"):
        return slot.assumed
    if policy == "donor":
        return slot.donor_assumed
    return slot.fresh_assumed if policy == "reset" else None
