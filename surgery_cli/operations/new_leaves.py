"""Leaves that come to a tree from elsewhere, with what the optimizer holds for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain

import msgspec

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.source import Source
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.rekey import rekey
from surgery_cli.optimizer.follow.new_params import grown
from surgery_cli.tree.devices import usual_sharding
from surgery_cli.tree.dtypes import WIDE
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec


def refuse_old_slots(edit: Operation) -> None:
    """Raise PlanError if the edit asks that slots follow by what they held: those of new params held nothing."""
    if edit.optimizer not in ("reset", "warm"):
        edit.refuse({"optimizer": "slots of new params have nothing to keep"})


class Here:
    """A tree that leaves come into: what is asked of it for each of them is found once."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._usual: dict[object, LeafSpec | None] = {}

    def usual(self, place: LeafPath) -> LeafSpec | None:
        """A leaf as the tree, or the item of a place, holds them: of JAX, on the devices of most; or of NumPy alone."""
        item = self._item(place)
        if item not in self._usual:
            specs = [o.spec for p, o in self.draft.leaves.items() if self._item(p) == item]
            self._usual[item] = _usual(specs)
        return self._usual[item]

    def held(self, path: LeafPath, spec: LeafSpec, source: Source) -> LeafSpec:
        """A leaf of a source as it is held at a place, where a file of arrays does not say: as JAX's that stand beside.

        Of 64 bits JAX has nothing, unless a script asks for that: the tree has such arrays of JAX then.
        """
        if source.tells_kinds or spec.kind is not LeafKind.NUMPY:
            return spec
        is_beside = self._item(path) in self._of_jax
        is_narrowed = spec.dtype in WIDE and not any(map(WIDE.intersection, self._of_jax.values()))
        if is_narrowed or not is_beside:
            return spec
        return msgspec.structs.replace(spec, kind=LeafKind.ARRAY)

    @cached_property
    def _of_jax(self) -> dict[object, set[str]]:
        """The dtypes of JAX's arrays, by item."""
        found: dict[object, set[str]] = {}
        for path, output in self.draft.leaves.items():
            if output.spec.kind is LeafKind.ARRAY:
                found.setdefault(self._item(path), set()).add(output.spec.dtype)
        return found

    def _item(self, path: LeafPath) -> object:
        return path[0] if self.draft.items.is_prefixed and path else None


def _usual(specs: Sequence[LeafSpec]) -> LeafSpec | None:
    arrays = [spec for spec in specs if spec.kind is LeafKind.ARRAY]
    text = usual_sharding(arrays)
    over_it = (spec for spec in arrays if spec.sharding == text)
    others = (spec for spec in specs if spec.kind is LeafKind.NUMPY)
    return next(chain(over_it, others), None)


def with_new_leaves(
    edit: Operation,
    draft: Draft,
    new: Mapping[LeafPath, Output],
    like: Mapping[LeafPath, LeafPath],
    scene: Scene,
    *,
    takes_like: bool = False,
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
        new,
        like,
        draft,
        scene,
        policy=policy if policy in ("reset", "warm") else None,
        name=edit.name,
        takes_like=takes_like,
        taken=new,
    )
    after = rekey(after, {}, arriving=found.leaves)
    slots = {path: slot for path, slot in found.slots.items() if path in after.leaves}
    return after.replaced(slots={**after.slots, **slots}).noting(*found.notes)
