"""Twins from the checkpoint from which their params were taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from surgery_cli.draft import Draft, LeafRecipe, LeafRef
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.slots import Slot
from surgery_cli.optimizer.survey import survey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec

if TYPE_CHECKING:
    from surgery_cli.operations.base import Scene


class Donors:
    """The optimizer states of donors, each surveyed once."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._known: dict[str, tuple[TreeSpec, dict[LeafPath, list[Slot]]]] = {}

    def twins(
        self, origin: LeafRef, slots: Sequence[Slot], draft: Draft
    ) -> dict[LeafPath, LeafRecipe] | None:
        """Recipes for all ``slots``, from the donor's slots of the param ``origin``; None if one is missing."""
        tree, by_param = self._survey(origin.source)
        theirs = by_param.get(origin.path, [])
        found: dict[LeafPath, LeafRecipe] = {}
        for slot in slots:
            other = _counterpart(slot, theirs)
            own = draft.leaves[slot.path].spec
            if other is None or tree[other.path].shape != own.shape:
                return None
            recipe = _grafted(LeafRef(origin.source, other.path), tree[other.path], own, slot.path)
            if recipe is None:
                return None
            found[slot.path] = recipe
        return found

    def _survey(self, name: str) -> tuple[TreeSpec, dict[LeafPath, list[Slot]]]:
        if name not in self._known:
            tree = self._scene.open(name)[1].tree
            by_param: dict[LeafPath, list[Slot]] = {}
            for slot in survey(tree).slots.values():
                by_param.setdefault(slot.param, []).append(slot)
            self._known[name] = (tree, by_param)
        return self._known[name]


def _counterpart(slot: Slot, theirs: Sequence[Slot]) -> Slot | None:
    """The same slot in the donor: in the same state, else the only one of its name in the same family."""
    alike = [
        other
        for other in theirs
        if (other.name, other.axis, other.relation, other.optimizer)
        == (slot.name, slot.axis, slot.relation, slot.optimizer)
        and other.path[len(other.node) + len(other.param) - len(other.root) :]
        == slot.path[len(slot.node) + len(slot.param) - len(slot.root) :]
    ]
    same = [other for other in alike if other.node == slot.node]
    found = same or alike
    return found[0] if len(found) == 1 else None


def _grafted(origin: LeafRef, donor: LeafSpec, own: LeafSpec, path: LeafPath) -> LeafRecipe | None:
    """The recipe of a slot that is taken from a donor, in the slot's own dtype."""
    from surgery_cli.operations.cast import step_to

    if donor.dtype == own.dtype:
        spec = msgspec.structs.replace(
            own,
            chunk_shape=donor.chunk_shape,
            write_shape=donor.write_shape,
            stored_bytes=donor.stored_bytes,
        )
        return LeafRecipe(origin, spec, policy="donor")
    try:
        step = step_to(path, donor, msgspec.structs.replace(own, stored_bytes=None))
    except PlanError:
        return None
    return LeafRecipe(origin, donor).then(step, policy="donor")
