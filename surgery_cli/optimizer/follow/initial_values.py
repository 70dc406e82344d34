"""How a slot gets its initial value: the optimizer's own number, or what its param is."""

from __future__ import annotations

import msgspec

from surgery_cli.draft.recipe import Draft, Output, Recipe, Step
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded


def refilled(draft: Draft, path: LeafPath, value: float, policy: str = "reset") -> Output:
    """The slot, or the number beside slots, with ``value`` in every element."""
    from surgery_cli.operations.slot_steps import FillFresh

    recipe = draft.leaves[path]
    fill = FillFresh(value=value)
    step = Step(fill, path, recipe.spec, fill.output(recipe.spec))
    return recipe.then(step, policy=policy)


def taking_param(draft: Draft, slot: Slot, policy: str) -> Output:
    """The slot as a copy of what its param becomes: the same origin and the same steps.

    Raises:
        PlanError: their shapes differ.
    """
    from surgery_cli.operations.cast import step_to

    own = draft.leaves[slot.path].spec
    param = draft.leaves[slot.param]
    if own.shape != param.spec.shape:
        raise PlanError(
            f"'{slot.path}' cannot take the values of '{slot.param}'",
            why=f"it is {own.type_text}, the param {param.spec.type_text}",
            fix=worded("edit both by name, with {twins: named}"),
            path=str(slot.path),
        )
    spec = param.spec if param.is_by_reference else own
    spec = msgspec.structs.replace(spec, kind=own.kind, dtype=param.spec.dtype)
    steps = param.steps
    if steps:
        steps = (*steps[:-1], msgspec.structs.replace(steps[-1], after=spec))
    recipe = Output(Recipe(param.recipe.origin, spec, steps), param.home, policy)
    if own.dtype != spec.dtype:
        recipe = recipe.then(step_to(slot.path, spec, own))
    return recipe
