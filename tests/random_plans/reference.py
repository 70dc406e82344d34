"""The fold over a plan's edits in flat NumPy: what must stand where, or that the plan is refused."""

from __future__ import annotations

from typing import Any

from tests.random_plans import additions, groups, keys, places, rules, shapes, twins, values
from tests.random_plans.model import Fields, State, Words
from tests.random_plans.world import World

OPERATIONS = {
    **values.OPERATIONS,
    **shapes.OPERATIONS,
    **groups.OPERATIONS,
    **places.OPERATIONS,
    **additions.OPERATIONS,
    **keys.OPERATIONS,
    "reset-optimizer": twins.reset_optimizer,
    **rules.OPERATIONS,
}


def edited(state: State, edit: Fields, world: World, words: Words, shared: dict[str, Any]) -> State:
    """The state after one more edit; ``shared`` are the plan's other fields.

    Raises:
        Refused: the contract says no.
    """
    after = state.copy()
    after.may.pop(2, None)  # each edit is judged on metadata by itself
    settings = {**edit, "_plan_optimizer": shared.get("optimizer")}
    settings["_is_told"] = "optimizer_kind" in shared
    OPERATIONS[edit["op"]](after, settings, world, words)
    twins.check_clocks(after)
    if any(
        "hyperparams" in path and after.leaves[path] is not state.leaves.get(path)
        for path in after.leaves
    ):
        after.may.setdefault(2, "a setting may come out of its range, rounded as it is")
    return after
