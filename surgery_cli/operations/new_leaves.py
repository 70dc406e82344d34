"""Leaves that come to a tree from elsewhere, with what the optimizer holds for them."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.rekey import rekey
from surgery_cli.optimizer.follow.new_params import grown
from surgery_cli.tree.paths import LeafPath


def refuse_old_slots(edit: Operation) -> None:
    """Raise PlanError if the edit asks that slots follow by what they held: those of new params held nothing."""
    if edit.optimizer not in ("reset", "warm"):
        edit.refuse_policy("slots of new params have nothing to keep")


def with_new_leaves(
    edit: Operation,
    draft: Draft,
    new: Mapping[LeafPath, Output],
    like: Mapping[LeafPath, LeafPath],
    scene: Scene,
) -> Draft:
    """The draft with ``new`` leaves, and the slots that params among them have; see ``grown``.

    Raises:
        PlanError: two leaves at one place, or what states hold for the new ones is not known.
    """
    after = rekey(draft, {}, arriving=new, is_literal=edit.follows_nothing)
    if edit.follows_nothing:
        return after
    mirrored = [slot.root for slot in draft.slots.values()]
    roots = {root for root in mirrored if any(path.is_below(root) for path in new)}
    nodes = roots or {path[:1] for path in new}
    scene.settle((p for p in draft.leaves if any(p.is_below(node) for node in nodes)), draft)
    policy = scene.policy(edit)
    found = grown(
        new, like, draft, scene, policy=policy if policy in ("reset", "warm") else None, taken=new
    )
    after = rekey(after, {}, arriving=found.leaves)
    slots = {path: slot for path, slot in found.slots.items() if path in after.leaves}
    return after.replaced(slots={**after.slots, **slots}).noting(*found.notes)
