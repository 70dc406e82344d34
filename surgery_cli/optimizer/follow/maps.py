"""One edit's maps of elements, as its slots follow them: what each becomes, and what must be said of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.effect import ByMap
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import LEAST_FACTORED, Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.follow.origins import Origins
from surgery_cli.optimizer.follow.rearranged import Mapped, Move, moved_slots
from surgery_cli.optimizer.follow.refusals import has_no_map
from surgery_cli.optimizer.follow.whole_leaves import WholeLeaves
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded


class Maps:
    """The moves of the slots of one edit, whose params ``draft`` has with their elements moved, and ``before`` had."""

    def __init__(self, before: Draft, draft: Draft, origins: Origins) -> None:
        self._before, self._draft, self._origins = before, draft, origins
        self._relations: dict[LeafPath, str] = {}
        self._taken: dict[LeafPath, tuple[Slot, LeafSpec]] = {}
        self._leaves = WholeLeaves()

    def map_of(self, param: LeafPath) -> Arrangement | None:
        """By which map a param was made of others, or of a part of one; None if it is what it was."""
        return self._origins[param].map if param in self._origins else None

    def made_of(self, path: LeafPath) -> tuple[Recipe, ...]:
        """What the leaves were before the edit of which one is made."""
        places = self._origins[path].paths if path in self._origins else (path,)
        return tuple(self._before.leaves[place].recipe for place in places)

    def moves(self, slots: Sequence[Slot], effect: ByMap) -> dict[LeafPath, Move]:
        """What becomes of the slots that one param has in one state, by path."""
        if not slots:
            return {}
        assert effect.map is not None
        param = slots[0].param
        specs = tuple(recipe.spec for recipe in self.made_of(param))
        by = Mapped(effect.map, specs, self._draft.leaves[param].spec)
        found = moved_slots(slots, {slot.path: self.made_of(slot.path) for slot in slots}, by)
        for slot in slots:
            self.see(slot, found[slot.path].relation, by.after)
        self._leaves.see(slots, by, found)
        return found

    def see(self, slot: Slot, relation: str, after: LeafSpec) -> None:
        """Remember what a slot is from now on to its param, which is now like ``after``."""
        known = slot.factoring
        if known is not None and len(after.shape) > 1 and not known.is_shown(after.shape):
            self._taken.setdefault(slot.state, (slot, after))
        if relation != slot.relation:
            self._relations[slot.path] = relation

    def refusals(
        self,
        slots: Sequence[Slot],
        found: Mapping[LeafPath, Move],
        fresh: Collection[LeafPath],
        name: str,
    ) -> dict[tuple[object, ...], Problem]:
        """Why slots cannot become what they must, by what is said once; ``fresh`` are those that only restart."""
        return {
            (slot.node, move.why): has_no_map(
                slot,
                name,
                move.why,
                may_restart=move.recipe is not None,
                settled_by=move.settled_by,
            )
            for slot in slots
            if (move := found[slot.path]).is_stuck(restarts=slot.path in fresh)
        }

    def with_relations(self, draft: Draft) -> Draft:
        """The draft with what slots are to their params now."""
        if not self._relations:
            return draft
        new = {
            path: msgspec.structs.replace(draft.slots[path], relation=relation)
            for path, relation in self._relations.items()
        }
        return draft.replaced(slots={**draft.slots, **new})

    def notes(self, edited: Collection[LeafPath]) -> list[Consequence]:
        """What was decided by optax's default alone, what the script may decide, and what goes by whole leaves."""
        factored = [
            Consequence(
                DocsPage.REARRANGED_SLOTS,
                f"'{state}' is taken to factor params whose second largest axis is {LEAST_FACTORED} or longer,"
                f" optax's default for `min_dim_size_to_factor`, so that '{slot.param}' ({after.type_text})"
                f" {'is' if _is_factored(slot, after) else 'is not'}: no other param shows it; `--like-init` holds"
                " the result against the script",
            )
            for state, (slot, after) in self._taken.items()
        ]
        left_out = self._left_out_by_axes(edited)
        whole = self._leaves.notes(lambda path: bool(left_out) and self._has_other_axes(path))
        return factored + left_out + whole

    def _left_out_by_axes(self, edited: Collection[LeafPath]) -> list[Consequence]:
        """That params have another number of axes, where states leave out some: often those of a number of axes."""
        params = [path for path in edited if self._has_other_axes(path)]
        slots = self._draft.slots.values() if params else ()
        holes = (slot for slot in slots if leaves_out(slot, self._draft))
        states = {hole.state: None for hole in holes if any(p.is_below(hole.root) for p in params)}
        if not states:
            return []
        named = quoted(folded(sorted(map(str, params))), 2)
        have, leave = "have" if len(params) > 1 else "has", "leave" if len(states) > 1 else "leaves"
        is_muon = any(slot.optimizer == "muon" for slot in slots)
        by_axes = "muon goes by axes" if is_muon else "if that goes by axes, as under many masks"
        told = "name their axes to it in the script (`muon_weight_dimension_numbers`), or "
        return [
            Consequence(
                DocsPage.REARRANGED_SLOTS,
                f"{named} {have} another number of axes now, and {quoted(states, 2)} {leave} out some params:"
                f" {by_axes}, {'so that ' * is_muon}training will not start from the result: its script makes other"
                f" states, and the first step fails. `--like-init` holds the result against it; {told * is_muon}"
                "`delete` the state in an edit before, and let the script begin with its own",
            )
        ]

    def _has_other_axes(self, path: LeafPath) -> bool:
        place = self._origins[path].paths[0] if path in self._origins else path
        old, new = self._before.leaves.get(place), self._draft.leaves.get(path)
        return old is not None and new is not None and len(old.spec.shape) != len(new.spec.shape)


def leaves_out(slot: Slot, draft: Draft) -> bool:
    """True for a hole of an optimizer's state, but for one where the params themselves have nothing."""
    param = draft.leaves.get(slot.param)
    is_empty = param is not None and bool(param.spec.empty)
    return slot.in_optimizer and slot.relation == "hole" and not is_empty


def _is_factored(slot: Slot, after: LeafSpec) -> bool:
    return slot.factoring is not None and slot.factoring.is_factored(after.shape) is True
