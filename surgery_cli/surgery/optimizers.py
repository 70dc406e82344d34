"""What is known of the optimizer before any edit: its states, its script, the few values that are read for it."""

from __future__ import annotations

from collections import Counter

import msgspec

from surgery_cli.draft.effect import Keeps
from surgery_cli.draft.recipe import SOURCE, Draft, LeafRef
from surgery_cli.engine.reading import read_scalar
from surgery_cli.errors import CheckpointError
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.optimizer.detect.settled import said_by_script
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow.bias_correction import Restart, Shift, restarts, shifts
from surgery_cli.optimizer.follow.restarts import Emptied, emptied
from surgery_cli.plan import Plan
from surgery_cli.script.function import Script
from surgery_cli.script.items import aligned
from surgery_cli.script.optimizer_trial import advised, settled, try_optimizer
from surgery_cli.script.pytrees import plain_path
from surgery_cli.script.slot_powers import Measured
from surgery_cli.script.trial_runs import TRIED_ON
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.fading_starts import with_counts
from surgery_cli.surgery.like_init import items_of
from surgery_cli.surgery.state_kinds import with_record, with_values
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note, Remark


class Look(msgspec.Struct, frozen=True):
    """What was looked up for the preview, what it told, and how many bytes of values were read for it."""

    note: Note | None
    bytes: int = 0


def survey_state(
    checkpoint: Checkpoint,
    plan: Plan,
    params: str | None,
    script: Script | None = None,
    *,
    needs_powers: bool = False,
) -> tuple[OptimizerSurvey, list[Look]]:
    """Survey the optimizer state of a checkpoint for a plan.

    With a script, its own optimizer is tried out on tiny params, which settles powers and initial values. What is open
    then, the record of an earlier run may settle; else values are read that may rule kinds out, and only if an edit of
    the plan changes slots, or if ``needs_powers`` says so.
    """
    tried = try_out(script, checkpoint) if script is not None else Tried()
    known = survey(
        checkpoint.tree,
        params=params or plan.params,
        kind=plan.optimizer_kind,
        slots=plan.slots,
    )
    found, looks = known, list(tried.failures) if known.slots else []
    if script is not None:
        found = said_by_script(known, advised(settled(known, tried.measured), tried.instead))
        count = _open(known) - _open(found)
        if count:
            text = (
                f"the optimizer of '{script.name}', tried out on {TRIED_ON}, settles {count} slots"
            )
            looks.append(Look(Remark(text)))
    found = with_record(checkpoint, found)
    if needs_powers or any(_changes_slots(edit, plan) for edit in plan.edits):
        found, notes, count = with_counts(checkpoint, found)
        looks += map(Look, notes)
        found, more = with_values(checkpoint, found)
        looks.append(Look(None, count + more))
    return found, looks


def _changes_slots(edit: Operation, plan: Plan) -> bool:
    """True for an edit that slots follow in value, or that restarts them.

    Also where no power is asked for: what values tell must be looked at before they change, for later runs.
    """
    if isinstance(edit, ResetOptimizer):
        return True
    if not isinstance(edit, LeafOperation) or isinstance(edit.effect, Keeps):
        return False
    return (edit.optimizer or plan.optimizer) != "keep"


def _open(found: OptimizerSurvey) -> int:
    """How many slots there are of which it is not known how they follow."""
    return sum(not slot.is_settled for slot in found.slots.values())


class Tried(msgspec.Struct, frozen=True):
    """What a script's optimizers showed, by plain path; what failed; what would let the script tell more."""

    measured: dict[LeafPath, Measured] = {}
    failures: list[Look] = []
    instead: str = ""


def try_out(script: Script, checkpoint: Checkpoint) -> Tried:
    """Try out the optimizers that the script's function returns.

    Raises:
        PlanError: the step has several items, and nothing says which of them the function is about.
    """
    items = items_of(checkpoint)
    abstract = aligned(script.name, script.abstract, checkpoint.tree, items).abstract
    if not abstract.optimizers:
        is_state = any(name.endswith("statelib.State") for name in abstract.classes.values())
        what = "an `nnx.state(…)`" if is_state else "what it returns"
        how = (
            "the `nnx.Optimizer` itself" if is_state else "a `TrainState`, or `tx` beside the state"
        )
        return Tried(
            instead=f"return {how} from '{script.name}': {what} does not hold the optimizer"
        )
    measured: dict[LeafPath, Measured] = {}
    failures = []
    for path, optimizers in abstract.optimizers.items():
        for optimizer in optimizers:
            try:
                seen = try_optimizer(optimizer)
            except Exception as error:  # noqa: BLE001 - whatever an optimizer of the user's raises
                reason = _reason(error)
                what = f"the optimizer of '{script.name}' (state '{path}') cannot be tried out"
                failures.append(Look(Consequence(f"{what}: {reason}")))
                continue
            for inner, one in seen.items():
                node = plain_path(path)
                measured[node / inner] = _both(measured.get(node / inner), one.below(node))
    return Tried(measured, failures)


def _reason(error: Exception) -> str:
    """Why an optimizer cannot be tried out, on one line."""
    name = type(error).__name__
    if "Tracer" in name:
        return (
            "it holds a number that the function computed with jax, which is not known on shapes alone;"
            " make it a Python number, or an optax schedule"
        )
    return f"{name}: {(str(error).splitlines() or [''])[0]}"


def _both(one: Measured | None, other: Measured) -> Measured:
    """What two optimizers that may have made the same slot show of it."""
    if one is None or one == other:
        return other
    return Measured(None, False, None, "several optimizers make such states, and they differ in it")


def look_at_hidden_twins(checkpoint: Checkpoint, draft: Draft) -> list[Look]:
    """Twins of edited params that stand in other items of the step, where `--item` chose one: nothing follows there."""
    location = checkpoint.location
    if not draft.items.is_partial:
        return []
    (item,) = checkpoint.items
    touched = {LeafPath((item, *path)) for path in checkpoint.tree if _is_touched(path, draft)}
    if not touched:
        return []
    try:
        tree = open_checkpoint(location.argument, step=location.step).tree
    except CheckpointError as error:
        what = f"the other items cannot be read, so twins in them are not known: {error.problems[0].what}"
        return [Look(Consequence(what))]
    hidden = Counter(
        str(slot.path[0])
        for slot in survey(tree).slots.values()
        if slot.in_optimizer and slot.relation != "hole" and slot.param in touched
        if slot.path[0] != item
    )
    return [
        Look(
            Consequence(
                f"{count} twins in the item '{other}' do not follow, as `--item {item}` chose one item:"
                f" leave `--item` out, and begin paths with '{item}/'"
            )
        )
        for other, count in hidden.items()
    ]


def _is_touched(path: LeafPath, draft: Draft) -> bool:
    """True if a leaf of the source has another value or no longer stands at its place."""
    recipe = draft.leaves.get(path)
    return recipe is None or not recipe.is_by_reference or recipe.home != LeafRef(SOURCE, path)


def look_at_restarts(checkpoint: Checkpoint, draft: Draft) -> list[Look]:
    """How large the next steps become where slots or their step count change and the other goes on: it is read."""
    looks = []
    decay_bytes = 0

    def number(ref: LeafRef) -> float | None:
        nonlocal decay_bytes
        if ref.source != SOURCE:
            return None
        decay_bytes += checkpoint.tree[ref.path].bytes
        value = read_scalar(checkpoint, ref.path)
        return float(value) if isinstance(value, int | float) else None

    changes: list[Restart | Shift | Emptied] = [*restarts(draft, number), *shifts(draft, number)]
    changes += emptied(draft)
    for change in changes:
        sentence = change.sentence(int(read_scalar(checkpoint, change.clock) or 0))
        if sentence is not None:
            looks.append(Look(Consequence(sentence), checkpoint.tree[change.clock].bytes))
    return [*looks, Look(None, decay_bytes)] if decay_bytes else looks
