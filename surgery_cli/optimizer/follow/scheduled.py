"""What stands beside a stored hyperparameter: the schedule that gives it at the next step, a count for a bias."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from surgery_cli.draft.effect import keeps_size
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.slots import Clock
from surgery_cli.errors import Problem, raise_all
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath

VALUES: Final = "hyperparams"
_STATES: Final = "hyperparams_states"
"""Fields of ``optax.inject_hyperparams``: the second has an entry for each hyperparameter that a schedule gives."""


def refuse_overwritten(draft: Draft) -> None:
    """A hyperparameter is given another value only if no schedule gives it one.

    Edits of the whole state (a cast, an average, a state from a donor) take such numbers along. Where the plan deletes
    the schedule's own state, the script that restores the result has no such schedule.

    Raises:
        PlanError: edits set numbers that a schedule overwrites; lists each of them.

    Source: ``update_fn`` of ``optax.inject_hyperparams``.
    """
    problems: list[Problem] = []
    for path in draft.changed:
        node = schedule_of(path)
        if node is None:
            continue
        state = [leaf for leaf in draft.leaves if leaf.is_below(node)]
        if state and _is_set(draft.leaves[path], state, draft):
            problems.append(_overwritten(path, node, state, draft))
    raise_all(problems)


def has_bias_count(path: LeafPath, clocks: Mapping[LeafPath, Clock]) -> bool:
    """True if a count by which optax corrects for a bias stands in the state whose setting ``path`` is."""
    at = max((n for n, key in enumerate(path) if key == VALUES), default=len(path) - 1)
    return any(
        clock.drives == "bias_correction" and where.is_below(path[:at])
        for where, clock in clocks.items()
    )


def is_scheduled(path: LeafPath, leaves: Iterable[LeafPath]) -> bool:
    """True for a hyperparameter that a schedule gives, whose state stands among the ``leaves``."""
    node = schedule_of(path)
    return node is not None and any(leaf.is_below(node) for leaf in leaves)


def schedule_of(path: LeafPath) -> LeafPath | None:
    """Where the state of its schedule stands, if the leaf is a hyperparameter and has one."""
    places = [n for n, key in enumerate(path[:-1]) if key == VALUES]
    if not places:
        return None
    at = places[-1]
    return LeafPath((*path[:at], _STATES, path[at + 1]))


def _is_set(recipe: Output, state: Collection[LeafPath], draft: Draft) -> bool:
    """True if an edit gives the number a value which its schedule does not come along with."""
    if any(not keeps_size(edit.effect) for edit in recipe.edits):
        return True
    is_theirs = recipe.home is not None and recipe.home.source != SOURCE
    return is_theirs and all(map(draft.is_untouched, state))


def _overwritten(
    path: LeafPath, node: LeafPath, state: Collection[LeafPath], draft: Draft
) -> Problem:
    counts = [leaf for leaf in state if is_integer(draft.leaves[leaf].spec.dtype)]
    instead = f"set '{counts[0]}', its step count, instead" if counts else "edit that instead"
    return Problem(
        f"'{path}' would be overwritten at the next step",
        why=f"a schedule gives it: '{node}' is the schedule's state",
        fix=f"{instead}; if your script no longer has the schedule, `delete` '{node}' in the same plan",
        path=str(path),
    )
