"""The fold over a plan's edits; all their problems are reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from surgery_cli.draft.expression import Made
from surgery_cli.draft.leaf_digest import Manifest
from surgery_cli.draft.recipe import Draft, DraftItems
from surgery_cli.draft.source import Source
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import Gathering, Problem, raise_all
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow.clocks import refuse_half_resets, removed_clock_notes
from surgery_cli.optimizer.follow.hyperparameters import (
    changed_settings,
    refuse_out_of_range,
    rounding_notes,
)
from surgery_cli.optimizer.follow.memories import memory_notes
from surgery_cli.optimizer.follow.outdated_notes import without_outdated
from surgery_cli.optimizer.follow.scheduled import refuse_overwritten
from surgery_cli.optimizer.follow.stated_kinds import stated_kind_notes
from surgery_cli.optimizer.follow.untold_counters import untold_counter_notes
from surgery_cli.resolution.array_kinds import as_format_tells
from surgery_cli.resolution.inverse import Inverse
from surgery_cli.resolution.keys_left import gap_notes
from surgery_cli.resolution.names import refuse_unstorable
from surgery_cli.resolution.stage import Stage
from surgery_cli.resolution.takings import rest_notes
from surgery_cli.resolution.unchanged import idle_together
from surgery_cli.resolution.unread import Values
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Note

if TYPE_CHECKING:
    from surgery_cli.planning import Plan


def resolve(
    plan: Plan,
    source: Source,
    open_source: Callable[[str], Source],
    *,
    items: DraftItems | None = None,
    surveyed: OptimizerSurvey | None = None,
    survey_told: Callable[[Source], OptimizerSurvey] | None = None,
    number: Callable[[Source, LeafPath], float | None] | None = None,
    values: Values | None = None,
    measure: Callable[[Made, Callable[[str], Source]], Any] | None = None,
    function: Callable[[str], UserFunction] | None = None,
    read_file: Callable[[str], bytes] | None = None,
    manifest: Callable[[str], Manifest] | None = None,
    inverse: Inverse | None = None,
) -> Draft:
    """The draft that the plan makes of ``source``, from metadata alone.

    ``open_source`` opens what the plan names by path; every donor is opened once. ``items`` are the trees of the step
    that is edited, ``surveyed`` a survey of the source's optimizer state, if one was made. ``survey_told`` makes
    that of a source for which values may be read, ``number`` reads a step count, ``values`` those of a small leaf as
    it will be, ``measure`` measures leaves of sources that it is given by name, ``read_file`` reads a small file and
    ``manifest`` one of digests; nothing is read without them. ``function`` loads one of the user's. ``inverse`` sees
    every edit. What metadata show to break the plan's ``check`` stands in its checks.

    Raises:
        PlanError: everything that is wrong with the plan, in its order, with file, line and field.
        CheckpointError: a donor cannot be read; wrong edits are listed with it.
    """
    gathering = Gathering()
    stage = Stage(plan, source, open_source)
    stage.inverse = inverse or stage.inverse
    stage.survey_told = survey_told or stage.survey_told
    stage.read_number, stage.read_values = number or stage.read_number, values or stage.read_values
    stage.measure = measure or stage.measure
    stage.function = function or stage.function
    stage.read_file, stage.manifest = read_file or stage.read_file, manifest or stage.manifest
    for name in plan.sources:
        with gathering.catching(field="sources"):
            stage.open(name)
    if surveyed is None and (plan.edits or plan.check):
        with gathering.catching():
            kind, slots = plan.optimizer_kind, plan.slots
            surveyed = survey(source.tree, params=plan.params, kind=kind, slots=slots)
    stage.survey = surveyed
    known = surveyed or OptimizerSurvey()
    draft = Draft.of(source.tree, source.fingerprint, known.slots, known.clocks).replaced(
        running=known.running, nonnegative=frozenset(known.nonnegative), items=items or DraftItems()
    )
    for index, edit in enumerate(plan.edits):
        draft = stage.edited_as_named(draft, edit, index, gathering)
    gathering.raise_if_any()
    draft = without_outdated(as_format_tells(stage.ended(draft)))
    refuse_unstorable(draft, () if plan.output is not None else draft.items.first_keys)
    numbers_noted = _numbers_kept(draft, known, stage)
    notes = _notes(draft, plan, stage.fingerprints)
    draft = stage.checked(draft.noting(*notes, *numbers_noted))
    refuse_other_donors(plan.fingerprints, stage.fingerprints)
    return draft.replaced(fingerprints={**draft.fingerprints, **stage.fingerprints})


def _numbers_kept(draft: Draft, known: OptimizerSurvey, stage: Stage) -> Iterator[Note]:
    """What becomes of counters and settings of the optimizer, rounded as they are; PlanError if that must not be."""
    refuse_half_resets(draft)
    settings = changed_settings(draft, known.hyperparams, stage)
    refuse_out_of_range(draft, settings)
    refuse_overwritten(draft)
    return rounding_notes(settings)


def _notes(draft: Draft, plan: Plan, fingerprints: Mapping[str, str]) -> Iterator[Note]:
    """What the edits together leave out, and bring for the optimizer; raises PlanError as ``rest_notes``."""
    yield from rest_notes(draft, fingerprints, plan.origins)
    yield from stated_kind_notes(draft)
    yield from memory_notes(draft)
    yield from removed_clock_notes(draft)
    yield from untold_counter_notes(draft)
    yield from gap_notes(draft)
    yield from idle_together(draft)


def refuse_other_donors(
    wanted: Mapping[str, str], found: Mapping[str, str], taken: str = "other values"
) -> None:
    """Refuse a plan that would take something else than it was made for, or than the run on record took.

    Raises:
        PlanError: each that has changed since, by its name in the plan.
    """
    raise_all(
        Problem(
            f"'{name}' is not what the plan was made for",
            why=f"it has changed since, or was written anew, and {taken} may be taken: {wanted[name]} then,"
            f" {fingerprint} now",
            fix="put it back as it was; or take it out of the plan's `fingerprints` (of a record: put its `plan` into"
            " a file of its own, and run that)",
            field="fingerprints",
        )
        for name, fingerprint in found.items()
        if wanted.get(name, fingerprint) != fingerprint
    )
