"""Leaves that must not be negative, under weights that could make them so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.tree.dtypes import is_floating
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded

FOLLOWING: Final = worded(
    "first moments then start at 0 and second moments stay (with {optimizer: keep} all stay)"
)
"""What an average of params alone does to their twins."""


def are_of_one_sign(weights: Sequence[float]) -> bool:
    """True if a mean by these weights is never below 0 where no member is."""
    return all(weight >= 0 for weight in weights) or all(weight <= 0 for weight in weights)


def refuse_negative(draft: Draft, named: Sequence[LeafPath], what: str) -> None:
    """See that nothing is among the leaves that must stay at 0 or above, as ``what`` could bring it below.

    Raises:
        PlanError: slots of squares or magnitudes are among them, or variances, or numbers of the optimizer state of
            which nobody knows whether they may be negative.
    """
    floating = [path for path in named if is_floating(draft.leaves[path].spec.dtype)]
    reasons = {path: reason for path in floating if (reason := _why_not(path, draft))}
    if not reasons:
        return
    path, reason = next(iter(reasons.items()))
    more = f"; and so it is with {len(reasons) - 1:,} more" if len(reasons) > 1 else ""
    raise PlanError(
        f"{what} could make '{path}' negative",
        why=f"{reason}{more}",
        fix=_way_out(list(reasons), draft),
        path=str(path),
        field="weights",
    )


def _why_not(path: LeafPath, draft: Draft) -> str:
    """Why the leaf must not be negative; '' if it may be."""
    slot = draft.slots.get(path)
    if slot is None:
        if in_optimizer_state(path, draft):
            return (
                "it is a number of the optimizer's own, perhaps a learning rate or a sum of squares"
            )
        return "it holds variances" if holds_variances(path, draft) else ""
    if not slot.in_optimizer or slot.is_params_like or slot.relation == "hole":
        return ""
    if slot.is_even:
        return f"{slot.title} holds squares or magnitudes; the optimizer takes roots of them"
    if slot.is_sign_open or (slot.power is None and slot.fresh is None):
        return f"nothing tells what {slot.name} is, and it may hold squares"
    return ""


def _way_out(paths: Sequence[LeafPath], draft: Draft) -> str:
    if all(holds_variances(path, draft) for path in paths):
        return worded("leave them out with {except}, or use weights of at least 0")
    roots = [draft.slots[path].root for path in paths if path in draft.slots]
    params = str(roots[0]) if roots else "params"
    return worded(
        "average the params alone, {at: {}}: {}; or leave such leaves out with {except}",
        params,
        FOLLOWING,
    )


def in_optimizer_state(path: LeafPath, draft: Draft) -> bool:
    """True for slots, and for everything else that stands where optimizers keep their state."""
    slot = draft.slots.get(path)
    if slot is not None:
        return slot.in_optimizer
    return path in draft.running or any(is_optimizer_name(key) for key in path[:-1])


def holds_variances(path: LeafPath, draft: Draft) -> bool:
    """True for the running variances of batch normalisation, in Flax linen and NNX: a `var` with a `mean` beside it."""
    node, tail = (path[:-1], path[-1:]) if path[-1:] == ("value",) else (path, ())
    if not node or node[-1] != "var":
        return False
    return LeafPath((*node[:-1], "mean", *tail)) in draft.leaves
