"""The few values that are read before any edit, each of them said: a pair of slots, a step count."""

from __future__ import annotations

import msgspec

from surgery_cli.draft import Draft
from surgery_cli.engine.reading import read_scalar, value_blocks
from surgery_cli.optimizer.clocks import restarts
from surgery_cli.optimizer.survey import OptimizerSurvey, adam_variant, survey
from surgery_cli.plan import Plan
from surgery_cli.store.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.verification.statistics import RatioStatistics, ratio_statistics


class Look(msgspec.Struct, frozen=True):
    """Values that were read for the preview, how many bytes, and what they told."""

    sentence: str
    bytes: int


def survey_state(
    checkpoint: Checkpoint, plan: Plan, params: str | None
) -> tuple[OptimizerSurvey, list[Look]]:
    """Survey the optimizer state of a checkpoint for a plan.

    Reads a pair of slots for each node of which only values tell the kind, and only if an edit of the plan needs to
    know: one that scales.
    """

    def surveyed(measured: dict[LeafPath, str]) -> OptimizerSurvey:
        return survey(
            checkpoint.tree,
            params=params or plan.params,
            kind=plan.optimizer_kind,
            slots=plan.slots,
            measured=measured,
        )

    found = surveyed({})
    scales = any(getattr(edit, "default_policy", "") == "transform" for edit in plan.edits)
    if not scales or not found.telling_pairs:
        return found, []
    told: dict[LeafPath, str] = {}
    looks = []
    for owner, (mu, nu) in found.telling_pairs.items():
        kind = adam_variant(*msgspec.structs.astuple(_ratios(checkpoint, mu, nu)))
        count = checkpoint.tree[mu].bytes + checkpoint.tree[nu].bytes
        verdict = f"`{kind}`" if kind else "nothing certain"
        looks.append(
            Look(f"read '{mu}' and '{nu}' to tell which optimizer keeps them: {verdict}", count)
        )
        if kind is not None:
            told[owner] = kind
    return (surveyed(told) if told else found), looks


def look_at_restarts(checkpoint: Checkpoint, draft: Draft) -> list[Look]:
    """How large the next steps become where squares restart under a step count that goes on: the count is read."""
    looks = []
    for restart in restarts(draft):
        sentence = restart.sentence(int(read_scalar(checkpoint, restart.clock) or 0))
        if sentence is not None:
            looks.append(Look(sentence, checkpoint.tree[restart.clock].bytes))
    return looks


def _ratios(checkpoint: Checkpoint, mu: LeafPath, nu: LeafPath) -> RatioStatistics:
    tree = checkpoint.tree
    pairs = zip(
        value_blocks(checkpoint, mu, tree[mu]), value_blocks(checkpoint, nu, tree[nu]), strict=True
    )
    return ratio_statistics(pairs)
