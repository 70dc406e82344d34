"""What a training script's optimizers, or the user's calls of optax, tell of a state, tried out on tiny params."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.optimizer.detect.settled import said_by_script
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.script.function import Script
from surgery_cli.script.items import aligned
from surgery_cli.script.optimizer_trial import advised, rests_on_settings, settled, try_optimizer
from surgery_cli.script.pytrees import plain_path
from surgery_cli.script.slot_powers import Measured
from surgery_cli.script.stated_optimizers import tried_calls
from surgery_cli.script.trial_runs import TRIED_ON
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.like_init import items_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.quantities import counted


def told_by_script(
    script: Script, checkpoint: Checkpoint, known: OptimizerSurvey
) -> tuple[OptimizerSurvey, list[Note]]:
    """``known``, with the powers and initial values that the script's optimizers show, and what is to be said of them.

    Raises:
        PlanError: the step has several items, and nothing says which of them the function is about.
    """
    items = items_of(checkpoint)
    abstract = aligned(script.name, script.abstract, checkpoint.tree, items).abstract
    instead, notes = "", list[Note]()
    if not abstract.optimizers:
        is_state = any(name.endswith("statelib.State") for name in abstract.classes.values())
        what = "an `nnx.state(…)`" if is_state else "what it returns"
        how = (
            "the `nnx.Optimizer` itself" if is_state else "a `TrainState`, or `tx` beside the state"
        )
        instead = f"return {how} from '{script.name}': {what} does not hold the optimizer"
    measured: dict[LeafPath, Measured] = {}
    for path, optimizers in abstract.optimizers.items():
        for optimizer in optimizers:
            try:
                seen = try_optimizer(optimizer)
            except Exception as error:  # noqa: BLE001 - whatever an optimizer of the user's raises
                reason = _reason(error)
                what = f"the optimizer of '{script.name}' (state '{path}') cannot be tried out"
                notes.append(Consequence(f"{what}: {reason}"))
                continue
            for inner, one in seen.items():
                node = plain_path(path)
                measured[node / inner] = _both(measured.get(node / inner), one.below(node))
    found = said_by_script(known, advised(settled(known, measured), instead))
    notes += _how_much(f"the optimizer of '{script.name}'", known, found)
    return found, notes if known.slots else []


def told_by_calls(
    kind: str | Mapping[str, str] | None, checkpoint: Checkpoint, known: OptimizerSurvey
) -> tuple[OptimizerSurvey, list[Note]]:
    """``known``, with what the calls of optax in ``optimizer_kind:`` show, and what is to be said of that.

    Raises:
        PlanError: a text is no call of optax, it does not make the state, or it cannot be tried out.
    """
    notes: list[Note] = []
    for call in tried_calls(kind, checkpoint.tree, known):
        found = said_by_script(known, settled(known, call.measured))
        notes += _how_much(f"`{call.text}`", known, found)
        known = found
    return known, notes


def _how_much(name: str, before: OptimizerSurvey, after: OptimizerSurvey) -> list[Remark]:
    """How many slots a trial settled."""
    open_states = {slot.state for slot in after.slots.values() if not slot.is_settled}
    count = sum(  # the slots of one state follow together or not at all
        slot.state not in open_states and (not slot.is_settled or rests_on_settings(slot))
        for slot in before.slots.values()
    )
    return (
        [Remark(f"{name}, tried out on {TRIED_ON}, settles {counted(count, 'slot')}")]
        if count
        else []
    )


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
