"""Judge: see that rules hold of a checkpoint; nothing is written."""

from __future__ import annotations

import time
from typing import NamedTuple

from surgery_cli import reports
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.checks import Finding, refuse_breaches
from surgery_cli.engine.execution import Execution
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.engine.sights import judged_recipes
from surgery_cli.errors import Problem, SurgeryError, raise_all
from surgery_cli.inputs.buckets import path_at
from surgery_cli.operations.asserting import Assertion
from surgery_cli.planning import Origin, Plan
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.records import recorded_in
from surgery_cli.rules.equality import Unchanged
from surgery_cli.script.user_code import Say
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.expected_reads import expect_reads
from surgery_cli.surgery.judged_checks import judged_checks
from surgery_cli.surgery.memory import bytes_to_use, memory_notes
from surgery_cli.surgery.planned_memory import judged_again_notes
from surgery_cli.surgery.preparation import Prepared, effective, prepare_to_judge
from surgery_cli.surgery.source_and_destination import check_standing, check_unchanged
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Note


def judge(
    source: str,
    plan: Plan,
    *,
    options: Options = Options(),
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Judgement:
    """See that what the plan's `assert`s say holds, where they stand among its other edits; nothing is written.

    ``say`` is told, before values are read, what takes more memory than it may, or more time.

    Raises:
        PlanError: metadata show that it does not, the plan is wrong, or a rule compares what nothing has edited.
        ValueRefusal: values show that it does not.
        CheckpointError: the source cannot be read.
    """
    found = judged(source, plan, options, listener, say)
    refuse_breaches(found.findings)
    return reports.Judgement(
        checkpoint=str(found.checkpoint.location.root),
        checks=judged_checks(found.draft, found.findings),
        bytes_read=found.bytes_read,
        sources_checked=found.sources_checked,
        not_judged=sorted(found.checkpoint.location.other_items),
        seconds=found.seconds,
        chosen=found.checkpoint.location.chosen,
        assumptions=found.assumptions,
    )


class Judged(NamedTuple):
    """What was seen of a checkpoint, held against rules."""

    checkpoint: Checkpoint
    draft: Draft
    findings: list[Finding]
    bytes_read: int
    sources_checked: int
    seconds: float
    assumptions: list[reports.Assumed]


def judged(
    source: str, plan: Plan, options: Options, listener: Listener | None, say: Say
) -> Judged:
    """Hold a checkpoint, as the plan would make it, against all rules; those that are broken are among the findings.

    Raises:
        PlanError: the plan is wrong, or a rule compares what nothing has edited.
        CheckpointError: the source cannot be read, or not in the memory that there is.
    """
    from surgery_cli.compute.kits import open_kit

    started = time.monotonic()
    _refuse_comparison_with_itself(plan)
    with reading(path_at(source)):
        prepared = prepare_to_judge(source, effective(plan, options), options)
    checks, limit = prepared.draft.checks, bytes_to_use(options.memory_bytes)
    for note in judging_notes(prepared, options.memory_bytes):
        say(note)
    total = sum(recipe.spec.bytes for recipe in judged_recipes(checks, (), limit))
    execution = Execution(
        prepared.sources,
        open_kit(options.device, options.mesh),
        memory_bytes=limit,
        meter=Meter(listener, "judging", total),
        recorded=recorded_in(prepared.sources),
        checks=checks,
        is_alone=len(prepared.functions) > 0,
    )
    expect_reads(prepared)
    try:
        execution.judge()
        sources_checked = execution.check_sources()
    except (OSError, SurgeryError) as error:
        check_standing(prepared, error)
        raise
    check_unchanged(prepared)
    return Judged(
        prepared.checkpoint,
        prepared.draft,
        execution.checks.findings(),
        execution.read_bytes,
        sources_checked,
        round(time.monotonic() - started, 3),
        assumed_steps(prepared.checkpoint, *prepared.sources.values()),
    )


def judging_notes(prepared: Prepared, memory_bytes: int) -> list[Note]:
    """What takes more memory to be judged than it may, or more time."""
    again = judged_again_notes(prepared.draft.checks, bytes_to_use(memory_bytes))
    return [*memory_notes(prepared.needs, memory_bytes), *again]


def _refuse_comparison_with_itself(plan: Plan) -> None:
    """Raise PlanError where `unchanged` is asked of a checkpoint that no edit of the plan has changed."""
    if any(edit.writes for edit in plan.edits):
        return
    stated = [(edit, Origin()) for edit in plan.edits if isinstance(edit, Assertion)]
    stated += [(rule.assertion, rule.origin) for rule in plan.check]
    problem = Problem(
        worded("{unchanged} would hold of every checkpoint here"),
        why="no edit stands before it, so each leaf is compared with itself",
        fix=worded("name what it is compared with: {equal_in: CKPT}"),
        field="unchanged",
    )
    raise_all(
        origin.located(problem)
        for edit, origin in stated
        if any(isinstance(rule, Unchanged) for rule in edit.rules)
    )
