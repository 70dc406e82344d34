"""What is known of the optimizer before any edit: its states, its script, the few values that are read for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.draft.effect import Keeps, Rearranges
from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.engine.reading import read_scalar
from surgery_cli.errors import CheckpointError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.optimizer.detect.stated_kind import by_node, is_call
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow.answers import Answer, answers_to
from surgery_cli.optimizer.follow.bias_correction import Restart, Shift, restarts, shifts
from surgery_cli.optimizer.follow.restarts import Emptied, emptied
from surgery_cli.planning import Plan
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.clock_values import Numbers
from surgery_cli.surgery.fading_starts import with_counts
from surgery_cli.surgery.state_kinds import with_record, with_values
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage

if TYPE_CHECKING:
    from surgery_cli.script.function import Script


class Look(msgspec.Struct, frozen=True):
    """What was looked up for the preview, what it told, and how many bytes of values were read for it."""

    note: Note | None
    bytes: int = 0


def survey_state(
    checkpoint: Checkpoint,
    plan: Plan,
    script: Script | None = None,
    *,
    needs_powers: bool = False,
) -> tuple[OptimizerSurvey, list[Look]]:
    """Survey the optimizer state of a checkpoint for a plan.

    With a script, its own optimizer is tried out on tiny params, which settles powers and initial values. What is open
    then, the record of an earlier run may settle; else values are read that may rule kinds out, and only if an edit of
    the plan changes slots, or if ``needs_powers`` says so.
    """
    found = survey(
        checkpoint.tree,
        params=plan.params,
        kind=plan.optimizer_kind,
        slots=plan.slots,
    )
    looks: list[Look] = []
    if any(map(is_call, by_node(plan.optimizer_kind).values())):
        from surgery_cli.surgery.optimizer_trials import told_by_calls  # loads what looks at code

        found, told, count = told_by_calls(plan.optimizer_kind, checkpoint, found)
        looks += [*map(Look, told), Look(None, count)]
    if script is not None:
        from surgery_cli.surgery.optimizer_trials import told_by_script

        found, told, count = told_by_script(script, checkpoint, found)
        looks += [*map(Look, told), Look(None, count)]
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
    if edit.effect is None or isinstance(edit.effect, Keeps):
        return False
    answers = answers_to(edit.effect)
    policy = edit.optimizer or plan.optimizer or answers.default
    found = {answers.of(policy, is_second_moment=which) for which in (False, True)}
    follows_in_place = {Answer.FOLLOWS} if isinstance(edit.effect, Rearranges) else set()
    return not found <= {Answer.STAYS, *follows_in_place}


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
        tree = open_checkpoint(location.address).tree
    except CheckpointError as error:
        what = f"the other items cannot be read, so twins in them are not known: {error.problems[0].what}"
        return [Look(Consequence(DocsPage.OPTIMIZERS, what))]
    hidden = Counter(
        str(slot.path[0])
        for slot in survey(tree).slots.values()
        if slot.in_optimizer and slot.relation != "hole" and slot.param in touched
        if slot.path[0] != item
    )
    return [
        Look(
            Consequence(
                DocsPage.OPTIMIZERS,
                f"{count} twins in the item '{other}' do not follow, as `--item {item}` chose one item:"
                f" leave `--item` out, and begin paths with '{item}/'",
            )
        )
        for other, count in hidden.items()
    ]


def _is_touched(path: LeafPath, draft: Draft) -> bool:
    """True if a leaf of the source has another value or no longer stands at its place."""
    recipe = draft.leaves.get(path)
    return recipe is None or not recipe.is_by_reference or recipe.home != LeafRef(SOURCE, path)


def look_at_restarts(draft: Draft, sources: Mapping[str, Any]) -> list[Look]:
    """How large the next steps become where slots or their step count change and the other goes on: it is read.

    ``sources`` are the checkpoint that is edited and the donors, by the names that the draft has for them.
    """
    looks = []
    decay_bytes, numbers = 0, Numbers()

    def number(ref: LeafRef) -> float | None:
        nonlocal decay_bytes
        if ref.source != SOURCE:
            return None
        decay_bytes += sources[ref.source].tree[ref.path].bytes
        value = read_scalar(sources[ref.source], ref.path)
        return float(value) if isinstance(value, int | float) else None

    changes: list[Restart | Shift | Emptied] = [*restarts(draft, number), *shifts(draft, number)]
    changes += emptied(draft)
    for found in changes:
        change = _as_it_comes(found, draft, sources, numbers)
        source, path = sources[change.counted.source], change.counted.path
        sentence = change.sentence(int(read_scalar(source, path) or 0))
        if sentence is not None:
            looks.append(Look(Consequence(DocsPage.COUNTERS, sentence), source.tree[path].bytes))
    return [*looks, Look(None, decay_bytes)] if decay_bytes else looks


def _as_it_comes(
    change: Restart | Shift | Emptied, draft: Draft, sources: Mapping[str, Any], numbers: Numbers
) -> Restart | Shift | Emptied:
    """The change with what its clock becomes where an edit makes that a mean of several counts."""
    output = draft.leaves.get(change.clock)
    if isinstance(change, Shift) or output is None or output.home != change.counted:
        return change
    now = numbers.becomes(change.clock, draft, sources) if output.edits else None
    return change if now is None else msgspec.structs.replace(change, set_to=int(now))
