"""What becomes of the twins when params are edited: keep, transform, reset or warm; and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from surgery_cli.draft.effect import Keeps, Scales, default_policy, is_new, may_be_negative
from surgery_cli.draft.recipe import SOURCE, Draft, Output, is_numeric
from surgery_cli.errors import Gathering, PlanError, Problem
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.detect.starts import as_gathered
from surgery_cli.optimizer.follow.donor_notes import Grafts, no_graft
from surgery_cli.optimizer.follow.donor_slots import Donors
from surgery_cli.optimizer.follow.initial_values import refilled, taking_param
from surgery_cli.optimizer.follow.param_copies import Beside
from surgery_cli.optimizer.follow.unsure import Kept
from surgery_cli.optimizer.placeholders import KIND, slots_line
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import InPlan, joined, worded
from surgery_cli.words.notes import Note

if TYPE_CHECKING:
    from surgery_cli.operations.base import LeafOperation, Scene


def carry_values(
    draft: Draft,
    edit: LeafOperation,
    edited: Sequence[LeafPath],
    before: Draft,
    policy: str | None,
    scene: Scene,
) -> Draft:
    """``draft``, in which ``edit`` has changed the leaves ``edited``, with their twins following by the policy.

    ``before`` is the draft before the edit. Without a ``policy`` the edit's own default holds, and slots for which it
    is not sure are kept with a note. Copies of params inside the optimizer state always follow; copies beside it and
    leaves that the edit itself names never do.

    Raises:
        PlanError: an explicit policy cannot be followed, with what would settle it; or something that holds squares
            would become negative.
    """
    _refuse_negative(draft, edit, edited)
    if not draft.slots:
        return draft
    if isinstance(edit.effect, Keeps) and edit.optimizer in (None, "keep", "transform"):
        return draft
    if any(slot.in_optimizer for param in edited for slot in draft.slots_of.get(param, ())):
        takes = any(_is_taken(param, draft, before) for param in edited)
        _refuse_policy(edit, policy, takes=takes)
    carrying = _Carrying(draft, edit, before, policy, scene, frozenset(edited))
    gathering = Gathering()
    for param in edited:
        if draft.leaves[param] is not before.leaves.get(param):
            with gathering.catching(path=str(param), field="optimizer"):
                carrying.follow(param)
    with gathering.catching(field="optimizer"):
        carrying.raise_refusals()
    gathering.raise_if_any()
    return draft.with_leaves(carrying.changed).noting(*carrying.notes())


def double_named(draft: Draft, selected: Iterable[LeafPath]) -> list[Slot]:
    """The slots among ``selected`` whose param is among them as well."""
    named = set(selected)
    slots = (draft.slots[path] for path in selected if path in draft.slots)
    return [s for s in slots if s.in_optimizer and s.relation != "hole" and s.param in named]


class _Carrying:
    """One edit's twins: their new recipes, and what must be said of them."""

    def __init__(
        self,
        draft: Draft,
        edit: LeafOperation,
        before: Draft,
        policy: str | None,
        scene: Scene,
        edited: frozenset[LeafPath],
    ) -> None:
        self.changed: dict[LeafPath, Output] = {}
        self._draft, self._edit, self._before = draft, edit, before
        self._policy, self._scene, self._edited = policy, scene, edited
        self._donors = Donors(scene)
        self._kept: dict[LeafPath, Kept] = {}
        self._refused: dict[tuple[object, ...], Problem] = {}
        self._effect = edit.effect
        self._beside = Beside(edit.effect)
        self._grafts = Grafts()

    def follow(self, param: LeafPath) -> None:
        """Give every twin of the param its steps. Raises PlanError as ``carry_values``."""
        states: dict[LeafPath, list[Slot]] = {}
        for slot in self._draft.slots_of.get(param, ()):
            recipe = self._draft.leaves.get(slot.path)
            if recipe is None or not is_numeric(recipe.spec):
                continue
            is_named = slot.path in self._edited
            if not slot.in_optimizer:
                self._beside.add(slot, is_named=is_named)
            elif not is_named:
                states.setdefault(slot.node.parent, []).append(slot)
        slots = [slot for state in states.values() for slot in state]
        if self._policy in (None, "transform") and self._graft(param, slots):
            return
        policy = self._policy or default_policy(self._effect)
        restarts = policy == "reset"
        if policy == "warm" and not any(slot.is_second_moment for slot in slots):
            policy = "reset"
        if self._effect == Scales(0) and policy in ("transform", "warm"):
            policy, restarts = "reset", True
        for state in states.values():
            for slot in state:
                if slot.is_params_like and restarts and slot.takes_param:
                    self._take_param(slot, "reset")
                elif slot.is_params_like:
                    self._follow_as_param(slot)
            self._follow_state([s for s in state if not s.is_params_like], policy)

    def _follow_state(self, slots: list[Slot], policy: str) -> None:
        """The slots of one param in one state; all of them by one policy, or all are kept."""
        if policy == "transform":
            self._transform(slots)
        for slot in slots:
            if policy == "keep":
                self._keep(slot)
            elif policy == "reset":
                self._reset(slot)
            elif policy == "warm":
                self._warm(slot)

    def _transform(self, slots: list[Slot]) -> None:
        slots = [as_gathered(slot, self._draft.leaves[slot.path]) for slot in slots]
        steps = {slot.path: self._edit.carry(slot) for slot in slots}
        stuck = [slot for slot in slots if steps[slot.path] is None]
        told = next((slot for slot in slots if slot.is_told), None)
        if stuck and told is not None and stuck[0].power is None:
            self._refused.setdefault(told.node.parent, _half_told(told, stuck[0]))
            return
        if stuck and self._policy == "transform":
            for slot in stuck:
                self._refused.setdefault(slot.node, self._cannot(slot))
            return
        for slot in slots:
            operations = steps[slot.path]
            if stuck or operations is None:  # half of a pair of moments is worse than none
                self._keep(slot)
                self._note_unsure(slot, stuck)
            else:
                self._apply(slot, operations, "transform")

    def _cannot(self, slot: Slot) -> Problem:
        if not slot.is_settled:
            what = "the power" if slot.power is None else "what is left of the start"
            return Problem(
                f"{what} of '{slot.path}' is not known, so it cannot follow '{self._edit.name}'",
                why=slot.unsure_because or "the disk does not tell it",
                fix=joined(
                    "; or ", (*slot.settled_by, worded("use {optimizer: keep}, `reset` or `warm`"))
                ),
                path=str(slot.path),
            )
        return Problem(
            f"'{slot.path}' cannot follow '{self._edit.name}' on '{slot.param}'",
            why=_PER_LEAF
            if slot.is_per_leaf
            else f"no rule is known for a {slot.name} ({slot.relation}) of {slot.optimizer}",
            fix=worded("use {optimizer: keep}, `reset` or `warm`"),
            path=str(slot.path),
        )

    def raise_refusals(self) -> None:
        """Raise what an explicit ``transform`` cannot do, once for each field of a state."""
        if self._refused:
            raise PlanError.of(self._refused.values())

    def _note_unsure(self, slot: Slot, stuck: list[Slot]) -> None:
        unsure = next((s for s in (slot, *stuck) if not s.is_settled), None)
        because = unsure.unsure_because if unsure else ""
        if not because and any(s.is_per_leaf for s in stuck):
            because = _PER_LEAF
        because = because or f"no rule says how they follow '{self._edit.name}'"
        self._kept_of(slot).add(slot, because, unsure.settled_by if unsure else ())

    def _kept_of(self, slot: Slot) -> Kept:
        owner = slot.node.parent or slot.node
        return self._kept.setdefault(owner, Kept(owner))

    def _apply(self, slot: Slot, operations: Iterable[LeafOperation], policy: str) -> None:
        recipe = self._draft.leaves[slot.path]
        param = self._before.leaves[slot.param].recipe
        for operation in operations:
            step = operation.step_on_twin(slot.path, recipe.spec, self._scene, param)
            recipe = recipe.then(step)
        self.changed[slot.path] = msgspec.structs.replace(recipe, policy=policy)

    def _keep(self, slot: Slot) -> None:
        recipe = self._draft.leaves[slot.path]
        self.changed[slot.path] = msgspec.structs.replace(recipe, policy="keep")

    def _reset(self, slot: Slot, policy: str = "reset") -> None:
        if slot.relation == "one":
            self._keep(slot)
            return
        if slot.fresh is None:
            if self._policy is None:
                self._keep(slot)
                self._kept_of(slot).add(
                    slot,
                    "the initial value is not known",
                    (
                        worded(
                            "add {}, with X that value", InPlan(slots_line(slot.node, fresh="X"))
                        ),
                    ),
                )
                return
            raise PlanError(
                f"the initial value of '{slot.path}' is not known",
                why=f"{slot.optimizer} starts it from its own settings, which are not on disk",
                fix=worded(
                    "use {optimizer: keep}, or add {}, with X that value; or {}, if it is optax's"
                    " default; or {}",
                    InPlan(slots_line(slot.node, fresh="X")),
                    KIND,
                    LIKE_INIT,
                ),
                path=str(slot.path),
            )
        self.changed[slot.path] = refilled(self._draft, slot.path, slot.fresh, policy)

    def _warm(self, slot: Slot) -> None:
        from surgery_cli.operations.slot_steps import FillMean

        if not slot.is_second_moment:
            is_known = slot.power is not None  # an unknown slot may hold squares
            if slot.fresh is None and is_known and self._policy is not None:
                self.changed[slot.path] = refilled(self._draft, slot.path, 0.0, "warm")
            else:
                self._reset(slot, "warm")
            return
        spec = self._draft.leaves[slot.path].spec
        if is_new(self._effect) and spec.size > 1:
            self._apply(slot, (FillMean(),), "warm")
        else:
            self._apply(slot, (), "warm")

    # --- copies of the params, and twins from a donor ----------------------------------------------------

    def _follow_as_param(self, slot: Slot) -> None:
        """A copy of the param in the optimizer state gets the same edit, or the optimizer would undo it."""
        if is_new(self._effect):
            self._take_param(slot, "carried")
            return
        operations = self._edit.carry(slot)
        if operations is None:
            recipe = self._draft.leaves[slot.path]
            step = self._edit.step(slot.path, recipe.spec, self._scene)
            self.changed[slot.path] = recipe.then(step, policy="carried")
        else:
            self._apply(slot, operations, "carried")

    def _take_param(self, slot: Slot, policy: str) -> None:
        self.changed[slot.path] = taking_param(self._draft, slot, policy)

    def _graft(self, param: LeafPath, slots: list[Slot]) -> bool:
        """Take the twins from where the param was taken; False if they are not all there."""
        origin = self._draft.leaves[param].home
        if not slots or not _is_taken(param, self._draft, self._before) or origin is None:
            return False
        taken = self._donors.twins(origin, slots, self._draft)
        self.changed.update(taken.recipes)
        self._grafts.add(origin.source, slots, taken)
        if not taken.recipes and self._policy == "transform":
            refusal = no_graft(param, origin, taken)
            self._refused.setdefault((origin.source, refusal.why), refusal)
            return True
        return bool(taken.recipes)

    def notes(self) -> list[Note]:
        """What the preview says of them."""
        draft, number = self._draft, self._scene.number
        found: list[Note] = [kept.note(self._effect, draft, number) for kept in self._kept.values()]
        found += self._grafts.notes(self._draft, self._edited)
        return found + self._beside.notes()


_PER_LEAF: Final = (
    "what reaches it was divided by the size of the whole leaf, so that it follows one factor of the leaf,"
    " but no array of factors"
)


def _half_told(told: Slot, missing: Slot) -> Problem:
    """The user said what some slots of a state are; alone, that would settle nothing."""
    return Problem(
        f"`slots:` gives '{told.node}', and '{missing.node}' is missing",
        why="the slots of one state follow an edit together or not at all",
        fix=worded("add '{}' to `slots:` with its power, or use {optimizer: keep}", missing.node),
        path=str(missing.path),
        field="slots",
    )


def _is_taken(param: LeafPath, draft: Draft, before: Draft) -> bool:
    """True for a param that the edit took from elsewhere."""
    origin = draft.leaves[param].home
    return origin is not None and origin != before.leaves[param].home


def _refuse_policy(edit: LeafOperation, policy: str | None, *, takes: bool) -> None:
    """Raise if nothing could follow the edit by this policy, whatever the optimizer; ``takes``: from a donor."""
    if edit.effect == Scales(0) and policy in ("transform", "warm"):
        raise PlanError(
            worded("a factor of 0 leaves nothing for {optimizer: {}} to follow", policy),
            why="optimizer state follows a factor by its inverse",
            fix=worded("use {optimizer: reset} or `keep`"),
            field="optimizer",
        )
    if not isinstance(edit.effect, Keeps | Scales) and policy == "transform" and not takes:
        raise PlanError(
            worded("{optimizer: transform} has nothing to follow in '{}'", edit.name),
            why="the new values do not come from the old ones"
            + ("" if is_new(edit.effect) else " alone"),
            fix=worded("use {optimizer: warm}, `reset` or `keep`"),
            field="optimizer",
        )


def _refuse_negative(draft: Draft, edit: LeafOperation, edited: Iterable[LeafPath]) -> None:
    """Raise if an edit that names squares, magnitudes or rates would make them negative."""
    if not may_be_negative(edit.effect):
        return
    for path in edited:
        why = _why_nonnegative(path, draft)
        if why:
            raise PlanError(
                f"'{path}' would become negative",
                why=why,
                fix="use a value of at least 0",
                path=str(path),
            )


def _why_nonnegative(path: LeafPath, draft: Draft) -> str:
    """Why the optimizer's leaf at ``path`` is never below 0; '' if it may be."""
    slot, origin = draft.slots.get(path), draft.leaves[path].home
    if slot is not None and slot.is_even and slot.relation != "hole":
        return f"{slot.name} of {slot.optimizer} holds squares or magnitudes; the optimizer takes roots of them"
    if origin is not None and origin.source == SOURCE and origin.path in draft.nonnegative:
        return "the optimizer keeps a square, a size or a rate in it, which is never below 0"
    return ""
