"""The few values that are read before any edit, each of them said: a pair of slots, a step count."""

from __future__ import annotations

import msgspec

from surgery_cli.draft import Draft
from surgery_cli.engine.reading import read_scalar, value_blocks
from surgery_cli.optimizer.clocks import restarts
from surgery_cli.optimizer.survey import OptimizerSurvey, adam_variant, survey
from surgery_cli.plan import Plan
from surgery_cli.store.checkpoint import Checkpoint
from surgery_cli.surgery.contract import Script
from surgery_cli.tree.paths import LeafPath
from surgery_cli.verification.optimizer_trial import Measured, settled, try_optimizer
from surgery_cli.verification.statistics import RatioStatistics, ratio_statistics


class Look(msgspec.Struct, frozen=True):
    """Values that were read for the preview, how many bytes, and what they told."""

    sentence: str
    bytes: int


def survey_state(
    checkpoint: Checkpoint, plan: Plan, params: str | None, script: Script | None = None
) -> tuple[OptimizerSurvey, list[Look]]:
    """Survey the optimizer state of a checkpoint for a plan.

    With a script, its own optimizer is tried out on tiny params, which settles powers and initial values. Where then
    only values tell the kind of a node, a pair of its slots is read, and only if an edit of the plan needs to know: one
    that scales.
    """
    seen: dict[LeafPath, Measured] = {}

    def surveyed(measured: dict[LeafPath, str]) -> OptimizerSurvey:
        found = survey(
            checkpoint.tree,
            params=params or plan.params,
            kind=plan.optimizer_kind,
            slots=plan.slots,
            measured=measured,
        )
        return settled(found, seen) if seen else found

    looks: list[Look] = []
    found = surveyed({})
    if script is not None and found.slots:
        open_before = sum(slot.power is None for slot in found.slots.values())
        seen, looks = try_out(script)
        found = surveyed({})
        count = open_before - sum(slot.power is None for slot in found.slots.values())
        if count:
            text = (
                f"the optimizer of '{script.name}', tried out on tiny params, settles {count} slots"
            )
            looks.append(Look(text, 0))
    scales = any(getattr(edit, "default_policy", "") == "transform" for edit in plan.edits)
    if not scales or not found.telling_pairs:
        return found, looks
    told: dict[LeafPath, str] = {}
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


def try_out(script: Script) -> tuple[dict[LeafPath, Measured], list[Look]]:
    """What the script's own optimizers show of their slots, by path; where one cannot be tried, that is said."""
    found: dict[LeafPath, Measured] = {}
    looks = []
    for path, optimizer in script.abstract.optimizers.items():
        try:
            measured = try_optimizer(optimizer)
        except Exception as error:  # noqa: BLE001 - whatever an optimizer of the user's raises
            reason = (str(error).splitlines() or [""])[0]
            what = f"the optimizer of '{script.name}' cannot be tried out"
            looks.append(Look(f"{what}: {type(error).__name__}: {reason}", 0))
            continue
        state = path / ("opt_state",)
        found.update({state / inner: seen for inner, seen in measured.items()})
    return found, looks


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
