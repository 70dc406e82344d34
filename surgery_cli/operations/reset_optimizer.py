"""Give slots of the optimizer state their initial values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft import Draft, LeafRecipe, is_numeric
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.set import Set
from surgery_cli.operations.settings import check_finite
from surgery_cli.optimizer.resets import refilled, taking_param
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, is_floating

_SHOWN_NUMBERS = 6


class ResetOptimizer(Operation, tag="reset-optimizer", kw_only=True, frozen=True):
    """Give the slots of the optimizer state their initial values, and with `clocks` restart its step counters.

    Patterns name slots, or params whose slots are meant; without any, all slots are reset. Schedules go on: they
    belong to no slot.
    """

    clocks: Annotated[
        bool,
        Meta(description="Restart the step counters that drive these slots as well."),
    ] = False
    fill: Annotated[
        float | None,
        Meta(description="Value for slots whose initial value is set by the training script."),
    ] = None

    example: ClassVar[str] = "- op: reset-optimizer\n  at: opt_state\n  clocks: true\n"
    selects_everything_without_at: ClassVar[bool] = True

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    def narrowed(self, selected: Sequence[LeafPath], draft: Draft) -> list[LeafPath]:
        """The slots that stand among ``selected``, or whose params do."""
        named = set(selected)
        return [
            slot.path
            for slot in draft.slots.values()
            if slot.in_optimizer
            and slot.relation not in ("hole", "one")
            and is_numeric(draft.leaves[slot.path].spec)
            and (slot.path in named or slot.param in named)
        ]

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        if self.optimizer is not None:
            raise PlanError(
                f"'{self.name}' takes no `optimizer`",
                why="it always resets",
                fix="take `optimizer` out of this edit",
                field="optimizer",
            )
        if self.fill is not None:
            check_finite(self.fill, "fill")
        slots = [draft.slots[path] for path in scene.select(self, draft)]
        if not slots and not self.optional:
            raise PlanError(
                "the edit names no slot of the optimizer state",
                why=_why_none(draft),
                fix=_fix_none(draft),
                field="at",
            )
        scene.settle((slot.param for slot in slots), draft)
        changed: dict[LeafPath, LeafRecipe] = {}
        gathering = Gathering()
        for slot in slots:
            with gathering.catching(path=str(slot.path)):
                changed[slot.path] = self._reset(slot, draft)
        gathering.raise_if_any()
        if self.clocks:
            changed |= _restarted_clocks(slots, draft, scene)
        return draft.with_leaves(changed).noting(*_numbers_left(slots, draft))

    def _reset(self, slot: Slot, draft: Draft) -> LeafRecipe:
        if slot.takes_param:
            return taking_param(draft, slot, "reset")
        value = self.fill if slot.fresh is None else slot.fresh
        if value is None:
            raise PlanError(
                f"the initial value of '{slot.path}' is not known",
                why=f"{slot.optimizer} starts {slot.name} from its own settings, which are not on disk",
                fix="give it with `fill`, or leave these slots out with `except`",
                field="fill",
            )
        return refilled(draft, slot, value)


def _why_none(draft: Draft) -> str:
    if any(slot.in_optimizer for slot in draft.slots.values()):
        return "slots are the leaves that `surgery inspect --optimizer` shows as twins of params"
    if draft.clocks:
        return "slots are found by the params that they mirror, and the tree has no such params"
    return "no state of an optimizer is known in the tree"


def _fix_none(draft: Draft) -> str:
    if draft.items.is_partial:
        return "leave `--item` out: the params may stand in another item of the step"
    if draft.clocks and not draft.slots:
        return (
            "put the params beside it first: `surgery insert-item CKPT NEW params --with PARAMS`;"
            " or let the script begin with its own fresh state and not restore this one"
        )
    return "name params or slots, or leave out the pattern to reset all slots"


def _restarted_clocks(
    slots: Iterable[Slot], draft: Draft, scene: Scene
) -> dict[LeafPath, LeafRecipe]:
    """The clocks of the slots, at the value at which the optimizer starts them."""
    found: dict[LeafPath, LeafRecipe] = {}
    for path in dict.fromkeys(clock for slot in slots for clock in slot.clocks):
        recipe, clock = draft.leaves.get(path), draft.clock_at(path)
        if recipe is not None and clock is not None:
            fresh = bool(clock.fresh) if recipe.spec.dtype == "bool" else clock.fresh
            step = Set(to=fresh).step(path, recipe.spec, scene)
            found[path] = recipe.then(step, policy="reset")
    return found


def _numbers_left(slots: Iterable[Slot], draft: Draft) -> list[str]:
    """A note that names the floating numbers which an optimizer keeps beside its slots, for no param."""
    owners = {slot.node.parent for slot in slots} - {LeafPath()}
    kept = {
        str(path)
        for path, recipe in draft.leaves.items()
        if recipe.spec.has_array
        and is_floating(recipe.spec.dtype)
        and path not in draft.slots
        and path.parent in owners
    }
    if not kept:
        return []
    names = ", ".join(f"'{name}'" for name in sorted(kept)[:_SHOWN_NUMBERS])
    more = f" and {len(kept) - _SHOWN_NUMBERS} more" if len(kept) > _SHOWN_NUMBERS else ""
    return [f"these numbers of the optimizer's own are left as they are: {names}{more}"]
