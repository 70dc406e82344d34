"""What becomes of the twins when params are edited: keep, transform, reset or warm; and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

import msgspec

from surgery_cli.draft.assumptions import Assumption
from surgery_cli.draft.effect import ByMap, Effect, Keeps, Masks, Means, Rearranges, Shifts, is_new
from surgery_cli.draft.recipe import Draft, Edited, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Gathering, Problem, raise_all
from surgery_cli.optimizer.detect.starts import as_gathered
from surgery_cli.optimizer.follow.answers import Answer, answers_of, may_follow
from surgery_cli.optimizer.follow.averaged_slots import Averages
from surgery_cli.optimizer.follow.donor_notes import Grafts, no_graft
from surgery_cli.optimizer.follow.donor_slots import Donors, is_taken, resting_on
from surgery_cli.optimizer.follow.fresh_slots import Renewals, new_shape
from surgery_cli.optimizer.follow.initial_values import refilled, taking_param
from surgery_cli.optimizer.follow.maps import Maps
from surgery_cli.optimizer.follow.origins import Origins
from surgery_cli.optimizer.follow.param_copies import Beside
from surgery_cli.optimizer.follow.refusals import (
    cannot_follow,
    half_told,
    open_signs,
    refuse_negative,
    refuse_policy,
    unknown_start,
)
from surgery_cli.optimizer.follow.states import Edit, States
from surgery_cli.optimizer.follow.transform import Change, followed, grows_back, like_param, masked
from surgery_cli.optimizer.follow.unsure import KeptStates, unfollowed
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.notes import Note


def carry_values(
    draft: Draft,
    edit: Edit,
    edited: Sequence[LeafPath],
    before: Draft,
    policy: str | None,
    scene: States,
    origins: Origins = MappingProxyType({}),
) -> Draft:
    """``draft``, in which ``edit`` has changed the leaves ``edited``, with their twins following by the policy.

    ``before`` is the draft before the edit, ``origins`` where in it stood what was joined or taken apart. Without a
    ``policy`` the edit's own default holds, and slots for which it is not sure are kept with a note. Copies of params
    inside the optimizer state always follow; copies beside it and leaves that the edit itself names never do.

    Raises:
        PlanError: an explicit policy cannot be followed, with what would settle it; or something that holds squares
            would become negative.
    """
    refuse_negative(draft, edit, edited)
    if not draft.slots:
        return draft
    if isinstance(edit.effect, Keeps) and edit.optimizer in (None, "keep", "transform"):
        edited = [one for one in edited if new_shape(one, before, draft)]  # what a function says
    if any(slot.in_optimizer for param in edited for slot in draft.slots_of.get(param, ())):
        refuse_policy(edit, policy, takes=any(is_taken(one, draft, before) for one in edited))
    else:
        draft = draft.noting(*unfollowed(draft, policy, edited))
    carrying = _Carrying(draft, edit, before, policy, scene, frozenset(edited), origins)
    gathering = Gathering()
    for param in edited:
        if draft.leaves[param] is not before.leaves.get(param):
            with gathering.catching(path=str(param), field="optimizer"):
                carrying.follow(param)
    with gathering.catching(field="optimizer"):
        half_told = carrying.beside.half_told(carrying.changed, draft)
        raise_all((*carrying.refused.values(), *half_told))
    gathering.raise_if_any()
    found = draft.with_leaves(carrying.changed).noting(*carrying.notes())
    return carrying.maps.with_relations(resting_on(carrying.assumed, found))


class _Carrying:
    """One edit's twins: their new recipes, and what must be said of them."""

    def __init__(
        self,
        draft: Draft,
        edit: Edit,
        before: Draft,
        policy: str | None,
        scene: States,
        edited: frozenset[LeafPath],
        origins: Origins,
    ) -> None:
        self.changed: dict[LeafPath, Output] = {}
        self.assumed: dict[LeafPath, Assumption] = {}
        self._draft, self._edit, self._before = draft, edit, before
        self._policy, self._scene, self._edited = policy, scene, edited
        self._donors = Donors(scene)
        self._kept = KeptStates()
        self.refused: dict[tuple[object, ...], Problem] = {}
        self._effect = edit.effect
        self.beside = Beside(edit.effect)
        self._grafts = Grafts()
        self._averages = Averages(self._donors, edit, scene)
        self._regrowing: dict[LeafPath, Slot] = {}
        self.maps = Maps(before, draft, origins)
        self._renewals = Renewals(before, draft, self.maps, edit, policy, self.refused)

    def follow(self, param: LeafPath) -> None:
        """Give every twin of the param its steps. Raises PlanError as ``carry_values``."""
        states = self._states_of(param)
        slots = [slot for state in states for slot in state]
        if not self._renewals.find(param, slots):
            return
        if self._policy in (None, "transform") and self._graft(param, slots):
            return
        effect = self._effect_on(param)
        policy = self._policy or self._renewals.default_for(param, effect)
        restarts = policy == "reset"
        if policy == "warm" and not any(slot.is_second_moment for slot in slots):
            policy = "reset"
        for state in states:
            for slot in state:
                takes_param = slot.takes_param and not isinstance(effect, Masks)
                if slot.is_params_like and restarts and takes_param:
                    self._take_param(slot, "reset")
                elif slot.is_params_like:
                    self._follow_as_param(slot, effect)
            self._follow_state([s for s in state if not s.is_params_like], policy, effect)

    def _states_of(self, param: LeafPath) -> list[list[Slot]]:
        """The twins of the param by the states that hold them, but for those that the edit names and copies beside."""
        states: dict[tuple[Key, ...], list[Slot]] = {}
        for slot in self._draft.slots_of.get(param, ()):
            recipe = self._draft.leaves.get(slot.path)
            if recipe is None or not may_follow(recipe.spec, self._effect):
                continue
            is_named = slot.path in self._edited
            if not slot.in_optimizer:
                if self._has_new_shape(param) and not is_named:
                    self._follow_as_param(slot, self._effect_on(param))
                else:
                    self.beside.add(slot, is_named=is_named)
            elif not is_named:
                states.setdefault(slot.node[:-1], []).append(slot)
        return list(states.values())

    def _has_new_shape(self, param: LeafPath) -> bool:
        return isinstance(self._effect, ByMap) or new_shape(param, self._before, self._draft)

    def _effect_on(self, param: LeafPath) -> Effect:
        if (own := self.maps.map_of(param)) is not None:
            return Rearranges(own)
        recipe, before = self._draft.leaves[param].recipe, self._before.leaves[param].spec
        return self._edit.effect_on(recipe, before)

    def _follow_state(self, slots: list[Slot], policy: str, effect: Effect) -> None:
        """The slots of one param in one state; those that follow do so together, or are all kept."""
        if isinstance(effect, ByMap):
            self._rearrange(slots, policy, effect)
            return
        answers = answers_of(slots, policy, effect)
        following = [slot for slot in slots if answers[slot.path] is Answer.FOLLOWS]
        if following:
            self._transform(following, effect, policy)
        for slot in slots:
            match answers[slot.path]:
                case Answer.STAYS:
                    self._apply(slot, (), policy)
                    if policy == "keep" and isinstance(effect, Masks) and not slot.is_even:
                        self._regrowing.setdefault(slot.node, slot)
                case Answer.MEAN if (mean := self._renewals.at_mean(slot)) is not None:
                    self._apply(slot, mean, policy)
                case Answer.MEAN | Answer.FRESH:
                    self._reset(slot, policy, self._renewals.spec_of(slot))

    def _rearrange(self, slots: list[Slot], policy: str, effect: ByMap) -> None:
        """Move the elements of the slots of one param in one state, or give them new values in their new shape."""
        moves = self.maps.moves(slots, effect)
        answers = answers_of(slots, policy, effect)
        fresh = {path for path, answer in answers.items() if answer is Answer.FRESH}
        refused = self.maps.refusals(slots, moves, fresh, self._edit.name)
        self.refused.update({**refused, **self.refused})
        for slot in slots if not refused else ():
            recipe, relation, *_ = moves[slot.path]
            assert recipe is not None
            if slot.path in fresh and relation != "one":
                self._reset(slot, policy, recipe.spec)
            else:
                stays = recipe is self._draft.leaves[slot.path].recipe
                changes = () if stays else (Change(self._edit.name, effect, recipe),)
                self._apply(slot, changes, policy)

    def _transform(self, slots: list[Slot], effect: Effect, policy: str) -> None:
        if isinstance(effect, Means):
            for slot, change in self._averages.of(slots, self._draft, self.refused, self.assumed):
                self._apply(slot, (change,), policy)
            return
        slots = [as_gathered(slot, self._draft.leaves[slot.path]) for slot in slots]
        self.refused.update(open_signs(slots, effect))
        leaves = self._draft.leaves
        steps = {slot.path: followed(slot, leaves[slot.path].recipe, effect) for slot in slots}
        stuck = [slot for slot in slots if steps[slot.path] is None]
        told = next((slot for slot in slots if slot.is_told), None)
        if stuck and told is not None and stuck[0].power is None:
            self.refused.setdefault(told.node.parent, half_told(told, stuck[0]))
            return
        if stuck and self._policy == "transform":
            for slot in stuck:
                self.refused.setdefault(slot.node, cannot_follow(slot, self._edit.name))
            return
        for slot in slots:
            changes = steps[slot.path]
            if stuck or changes is None:  # half of a pair of moments is worse than none
                self._apply(slot, (), "keep")
                self._kept.add_unsure(slot, stuck, self._edit.name)
            else:
                self._apply(slot, changes, policy)

    def _apply(self, slot: Slot, changes: Iterable[Change], policy: str) -> None:
        output = self._draft.leaves[slot.path]
        for change in changes:
            edit = Edited(change.name, change.effect, is_named=False)
            output = output.then(change.recipe, edit)
        self.changed[slot.path] = msgspec.structs.replace(output, policy=policy)

    def _reset(self, slot: Slot, policy: str, spec: LeafSpec | None = None) -> None:
        if slot.relation == "one" and spec is None:
            self._apply(slot, (), "keep")
            return
        fresh = slot.fresh
        if fresh is None and policy == "warm" and slot.power is not None and self._policy:
            fresh = 0.0  # a first moment: only a slot of which nothing is known may hold squares
        if fresh is None:
            if self._policy is None and spec is None:
                self._apply(slot, (), "keep")
                self._kept.add_without_start(slot)
                return
            self.refused.setdefault(slot.node, unknown_start(slot, may_stay=spec is None))
            return
        effect = self._effect_on(slot.param) if isinstance(self._effect, Masks) else None
        if isinstance(effect, Masks):
            changes = masked(slot, self._draft.leaves[slot.path].recipe, effect, fresh)
            if changes is None:
                self.refused.setdefault(slot.node, cannot_follow(slot, self._edit.name))
            else:
                self._apply(slot, changes, policy)
            return
        self.changed[slot.path] = refilled(self._draft, slot.path, fresh, policy, spec)

    def _follow_as_param(self, slot: Slot, effect: Effect) -> None:
        """A copy of the param in the optimizer state gets the same edit, or the optimizer would undo it."""
        if is_new(effect):
            self._take_param(slot, "carried")
            return
        recipe = self._draft.leaves[slot.path].recipe
        if isinstance(effect, ByMap) and (slot.relation != "same" or effect.regroups):
            self._rearrange([slot], "carried", effect)
            return
        changes = None if self._has_new_shape(slot.param) else followed(slot, recipe, effect)
        if changes is None and isinstance(effect, Shifts | Keeps):
            changes = like_param(self._draft.leaves[slot.param], recipe)
        if changes is None:  # at the path of the param, which random values go by
            path = slot.param if isinstance(effect, ByMap) else slot.path
            like = self._draft.leaves[slot.param].recipe
            made = self._edit.made(path, recipe, self._scene, like)
            changes = (Change(self._edit.name, self._edit.effect_on(made, recipe.spec), made),)
        self._apply(slot, changes, "carried")

    def _take_param(self, slot: Slot, policy: str) -> None:
        was = self.maps.made_of(slot.param)[0].spec if self._has_new_shape(slot.param) else None
        self.changed[slot.path] = taking_param(self._draft, slot, policy, was)

    def _graft(self, param: LeafPath, slots: list[Slot]) -> bool:
        """Take the twins from where the param was taken; False if they are not all there."""
        origin = self._draft.leaves[param].home
        if not slots or origin is None or not is_taken(param, self._draft, self._before):
            return False
        wanted, specs = self._renewals.wanted(slots)
        taken = self._donors.twins(origin, wanted, self._draft, specs)
        self.changed.update(taken.recipes)
        self.assumed.update(taken.assumed)
        self._grafts.add(origin.source, slots, taken)
        if not taken.recipes and self._policy == "transform":
            refusal = no_graft(param, origin, taken)
            self.refused.setdefault((origin.source, refusal.why), refusal)
            return True
        return bool(taken.recipes)

    def notes(self) -> list[Note]:
        """What the preview says of them."""
        draft, number = self._draft, self._scene.number
        found: list[Note] = [*self._kept.notes(self._effect, draft, number)]
        found += self._grafts.notes(self._draft, self._edited, self.changed)
        found += [grows_back(slot, self._edit.name) for slot in self._regrowing.values()]
        found += self.maps.notes(self._edited)
        return [*found, *self._averages.notes(), *self.beside.notes()]
