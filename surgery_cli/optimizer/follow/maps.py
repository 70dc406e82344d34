"""One edit's maps of elements, as its slots follow them: what each becomes, and what must be said of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from surgery_cli.draft.effect import Rearranges
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import LEAST_FACTORED, Slot
from surgery_cli.optimizer.follow.rearranged import Mapped, Move, moved_slots
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.notes import Consequence


class Maps:
    """The moves of the slots of one edit, whose params ``draft`` has with their elements moved, and ``before`` had."""

    def __init__(self, before: Draft, draft: Draft) -> None:
        self._before, self._draft = before, draft
        self._relations: dict[LeafPath, str] = {}
        self._taken: dict[LeafPath, tuple[Slot, LeafSpec]] = {}

    def moves(self, slots: Sequence[Slot], effect: Rearranges) -> dict[LeafPath, Move]:
        """What becomes of the slots that one param has in one state, by path."""
        if not slots:
            return {}
        assert effect.map is not None
        param, leaves = slots[0].param, self._draft.leaves
        by = Mapped(effect.map, self._before.leaves[param].spec, leaves[param].spec)
        found = moved_slots(slots, {slot.path: leaves[slot.path].recipe for slot in slots}, by)
        for slot in slots:
            self.see(slot, found[slot.path].relation, by.after)
        return found

    def see(self, slot: Slot, relation: str, after: LeafSpec) -> None:
        """Remember what a slot is from now on to its param, which is now like ``after``."""
        known = slot.factoring
        if known is not None and len(after.shape) > 1 and not known.is_shown(after.shape):
            self._taken.setdefault(slot.state, (slot, after))
        if relation != slot.relation:
            self._relations[slot.path] = relation

    def with_relations(self, draft: Draft) -> Draft:
        """The draft with what slots are to their params now."""
        if not self._relations:
            return draft
        new = {
            path: msgspec.structs.replace(draft.slots[path], relation=relation)
            for path, relation in self._relations.items()
        }
        return draft.replaced(slots={**draft.slots, **new})

    def notes(self) -> list[Consequence]:
        """What was decided by optax's default alone, once for each state."""
        return [
            Consequence(
                f"'{state}' is taken to factor params whose second largest axis is {LEAST_FACTORED} or longer,"
                f" optax's default for `min_dim_size_to_factor`, so that '{slot.param}' ({after.type_text})"
                f" {'is' if _is_factored(slot, after) else 'is not'}: no other param shows it; `--like-init` holds"
                " the result against the script"
            )
            for state, (slot, after) in self._taken.items()
        ]


def _is_factored(slot: Slot, after: LeafSpec) -> bool:
    return slot.factoring is not None and slot.factoring.is_factored(after.shape) is True
