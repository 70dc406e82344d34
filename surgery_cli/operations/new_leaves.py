"""Leaves that come to a tree from elsewhere, with what the optimizer holds for them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.source import Source
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.rekey import rekey
from surgery_cli.optimizer.follow.new_params import grown
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec


def refuse_old_slots(edit: Operation) -> None:
    """Raise PlanError if the edit asks that slots follow by what they held: those of new params held nothing."""
    if edit.optimizer not in ("reset", "warm"):
        edit.refuse_policy("slots of new params have nothing to keep")


def kind_here(source: Source, draft: Draft) -> LeafKind | None:
    """The kind that arrays of a source which tells none have in a tree: JAX's, unless there are NumPy's alone."""
    if source.tells_kinds:
        return None
    kinds = {output.spec.kind for output in draft.leaves.values()}
    is_of_numpy = LeafKind.NUMPY in kinds and LeafKind.ARRAY not in kinds
    return LeafKind.NUMPY if is_of_numpy else LeafKind.ARRAY


def of_kind(spec: LeafSpec, kind: LeafKind | None) -> LeafSpec:
    """An array of a kind that was found by ``kind_here``; other leaves are what they are."""
    is_said = kind is None or spec.kind is not LeafKind.NUMPY
    return spec if is_said else msgspec.structs.replace(spec, kind=kind)


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
