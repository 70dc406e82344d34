"""From a source and a plan to everything that is decided before a tensor byte moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.engine.checked_source import has_digest
from surgery_cli.engine.checks import refuse_known_breaches
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.suffixes import ARRAY_SUFFIXES
from surgery_cli.planning import Plan, replaced
from surgery_cli.proof.record_places import check_record_place
from surgery_cli.proof.records import recorded_in
from surgery_cli.resolution import refuse_other_donors, resolve
from surgery_cli.resolution.inverse import Inverse
from surgery_cli.salvage.opening import opened
from surgery_cli.script.user_code import Say
from surgery_cli.script.user_functions import UserFunctions
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import AbovePlan
from surgery_cli.store import filesystem
from surgery_cli.store.export.planning import plan_export
from surgery_cli.store.export.table import FORMATS
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.filesystem.boundary import Boundary
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.store.write.step_plan import draft_items, plan_items
from surgery_cli.store.write.strategy import Costs, costs_of_references, is_compact
from surgery_cli.surgery.expected_digests import Manifests
from surgery_cli.surgery.exporting import in_format, refuse_settings
from surgery_cli.surgery.held_history import check_history
from surgery_cli.surgery.loras_held import LeafLoras
from surgery_cli.surgery.measured_shapes import Measuring
from surgery_cli.surgery.memory import Need, check_memory
from surgery_cli.surgery.optimizers import (
    Look,
    look_at_hidden_twins,
    look_at_restarts,
    survey_state,
)
from surgery_cli.surgery.planned_memory import planned_needs
from surgery_cli.surgery.repeated_loras import agreed_loras
from surgery_cli.surgery.small_files import SmallFiles
from surgery_cli.surgery.states_apart import Comparison
from surgery_cli.surgery.written_values import WrittenValues
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted

if TYPE_CHECKING:
    from surgery_cli.script.function import Script


def effective(plan: Plan, options: Options) -> Plan:
    """The plan with what the options say above it: what is recorded can be run again.

    Of the optimizer's kind, a name replaces the plan's, nodes add to it.

    Raises:
        PlanError: a value is not what the plan's field takes, such as a negative seed.
    """
    above = {
        name: value
        for name in AbovePlan.__struct_fields__
        if name != "optimizer_kind" and (value := getattr(options, name)) is not None
    }
    plan = replaced(plan, **above)
    given, own = options.optimizer_kind, plan.optimizer_kind
    if given is None:
        return plan
    if isinstance(given, dict) and "" not in given and own is not None:
        given = {**({"": own} if isinstance(own, str) else own), **given}
    return replaced(plan, optimizer_kind=given)


class Prepared(msgspec.Struct, frozen=True):
    """Everything that is decided before a tensor byte moves."""

    checkpoint: Checkpoint
    draft: Draft
    sources: dict[str, Any]
    boundary: Boundary
    plans: dict[str, ItemPlan]
    references: dict[str, Costs]
    """For every item, what its leaves cost that are taken by reference."""
    compact: dict[str, bool]
    reason: str
    looked: list[Look]
    """What was read beyond the metadata, and what it told."""
    needs: list[Need]
    """What takes more memory at once than it may, the largest first."""
    functions: UserFunctions
    files: SmallFiles
    manifests: Manifests
    """Those that rules of the plan hold leaves against: no value depends on them."""
    inverse: Inverse
    loras: dict[LeafPath, LeafLoras]
    """What becomes of LoRAs in leaves that change."""
    plan: Plan

    left_out: tuple[str, ...] = ()
    """Names of items beside the trees that do not come along."""

    @property
    def kept_plans(self) -> dict[str, ItemPlan]:
        """The items of the result: one of which no leaf is left goes."""
        return {name: plan for name, plan in self.plans.items() if plan.leaves}

    @property
    def donors(self) -> dict[str, str]:
        """The fingerprints of everything else that values, layout or order are taken from, by its name in the plan."""
        others = {name: mark for name, mark in self.draft.fingerprints.items() if name != SOURCE}
        return others | self.files.fingerprints

    @property
    def output(self) -> Export | None:
        """In which format of other programs the result is: nothing but leaves comes along then."""
        return self.plan.output

    @property
    def is_export(self) -> bool:
        """True if the result is in such a format."""
        return self.output is not None


def prepare(source: str, plan: Plan, options: Options, say: Say = lambda _: None) -> Prepared:
    """Resolve a plan against a checkpoint, from metadata; ``say`` is told what user code is imported.

    Raises:
        ContractError: with ``like_init``, that the training script could not restore the result.
        ValueRefusal: a rule of the plan's policy would not hold of it.
        CheckpointError: something else was saved over the source since its record was written, or it is damaged.
        SurgeryError: everything that is wrong, as far as metadata shows.
    """
    prepared = prepare_to_judge(source, plan, options, say)
    refuse_known_breaches(prepared.draft.checks)
    check_history(prepared.checkpoint, options.memory_bytes)
    return prepared


def _opened(source: str, plan: Plan, options: Options) -> Checkpoint:
    """The source; the plan of a run that was about one item would mean the leaves of all.

    Raises:
        PlanError: several are chosen for such a plan; or CheckpointError: it does not open.
    """
    checkpoint = opened(source, step=options.step, item=options.item)
    if plan.of_item and checkpoint.location.prefix_items:
        raise PlanError(
            f"the plan is about the item '{plan.of_item}' alone, and several are chosen",
            why="its paths have no item in front, and would mean leaves of "
            + quoted(checkpoint.items, word="and"),
            fix=f"choose the one that is meant: `--item {plan.of_item}`",
            file=next((origin.file for origin in plan.origins), None),
        )
    return checkpoint


def prepare_to_judge(
    source: str, plan: Plan, options: Options, say: Say = lambda _: None
) -> Prepared:
    """As ``prepare``; what breaks the plan's policy stands in the draft's checks."""
    refuse_settings(plan, options)
    checkpoint = _opened(source, plan, options)
    if options.as_step is not None:
        _check_step(options.as_step, checkpoint, source)
    open_by_path, script = cache(open_source), _script(options, say)
    has_work = plan.edits or plan.reshard is not None
    surveyed, looked = survey_state(checkpoint, plan, script) if has_work else (None, [])

    apart, functions = Comparison(checkpoint, plan, script), UserFunctions(say)
    measuring, values, files, inverse = Measuring(), WrittenValues(), SmallFiles(), Inverse()
    manifests = Manifests(checkpoint)

    def drafted(plan: Plan, inverse: Inverse | None = None) -> Draft:
        return resolve(
            plan,
            checkpoint,
            open_by_path,
            items=draft_items(checkpoint),
            surveyed=surveyed,
            survey_told=apart.survey,
            number=apart.number,
            values=values.of,
            measure=measuring.measure,
            function=functions.load,
            read_file=files.read,
            manifest=manifests.read,
            inverse=inverse,
        )

    draft = drafted(plan, inverse)
    refuse_other_donors(plan.fingerprints, files.fingerprints)
    sources: dict[str, Any] = {
        name: checkpoint if name == SOURCE else open_by_path(plan.sources.get(name, name))
        for name in draft.fingerprints
    }
    looked += look_at_hidden_twins(checkpoint, draft) + look_at_restarts(draft, sources)
    if script is not None:
        from surgery_cli.surgery.like_init import check_draft

        looked += [Look(note) for note in check_draft(script, draft, plan, checkpoint, drafted)]
    looked += [*apart.looks_at(draft, sources), *measuring.looks(), Look(None, values.bytes)]
    if plan.reshard is not None:  # what an edit does to values is looked at before
        draft = _laid_out(draft, plan, checkpoint, sources, open_by_path, script, say)
    draft, plans = _as_written(draft, plan, checkpoint, sources)
    boundary = Boundary(opened.place_on_disk for opened in sources.values())
    references, compact, reason = _ways(plans, boundary, options)
    needs = planned_needs(plans, compact, draft.checks, options.device, options.memory_bytes)
    check_memory(needs)
    loras = agreed_loras(draft, sources)
    written, told = (plans, references, compact, reason), (looked, needs, functions)
    parts = (checkpoint, draft, sources, boundary)
    return Prepared(*parts, *written, *told, files, manifests, inverse, loras, plan)


def _ways(
    plans: Mapping[str, ItemPlan], boundary: Boundary, options: Options
) -> tuple[dict[str, Costs], dict[str, bool], str]:
    """What references cost each item, whether it is written anew, and why."""
    references = {name: costs_of_references(item, boundary) for name, item in plans.items()}
    choices = {
        name: is_compact(item, references[name], options.compact) for name, item in plans.items()
    }
    anew = {name: chosen for name, (chosen, _) in choices.items()}
    return references, anew, _main_reason(choices.values())


def _laid_out(draft: Draft, plan: Plan, *given: Any) -> Draft:
    from surgery_cli.surgery.resharding import laid_out

    return laid_out(draft, plan, *given)


def _as_written(
    draft: Draft, plan: Plan, checkpoint: Checkpoint, sources: dict[str, Any]
) -> tuple[Draft, dict[str, ItemPlan]]:
    """The draft in the format that it is written in, and how the leaves of every item come about."""
    if plan.output is not None:
        draft = in_format(draft, checkpoint, plan)
        return draft, plan_export(draft, FORMATS[plan.output.format], sources)
    check_record_place(checkpoint, draft.items.made)
    recorded = cache(partial(recorded_in, sources))
    return draft, plan_items(checkpoint, draft, sources, lambda ref: has_digest(recorded(), ref))


def _script(options: Options, say: Say) -> Script | None:
    """The function of the user's with which the result is to agree."""
    if options.like_init is None:
        return None
    from surgery_cli.script.function import read_script

    return read_script(options.like_init, say=say, device=options.device)


def _main_reason(choices: Collection[tuple[bool, str]]) -> str:
    """Why items are written as they are: of one that is written anew, if there is one."""
    anew = (text for chosen, text in choices if chosen)
    others = (text for _, text in choices if text)
    return next(anew, "") or next(others, "the format is one file, written anew")


def _check_step(step: int, checkpoint: Checkpoint, source: str) -> None:
    """Refuse a number that the step of the result cannot have."""
    if step_name(str(step)) is None:
        raise PlanError(
            f"`--as-step {step}` is no step",
            why="steps are counted from 0, in 18 digits at most",
            fix="give another number",
        )
    if checkpoint.location.shape != "root":
        raise PlanError(
            f"'{source}' has no step to rename",
            why="`--as-step` gives the step inside a root another number; this is no root",
            fix="name the destination as the step is to be called",
        )


def open_source(text: str) -> Checkpoint | ArrayFile:
    """A donor by its path: an array file by its suffix, else a checkpoint.

    Raises:
        CheckpointError: it is neither, or cannot be read.
        PlanError: nothing stands there.
    """
    text = address(text, refusal=CheckpointError)
    path = path_at(text)
    filesystem.forget(path)
    if path.suffix in ARRAY_SUFFIXES and filesystem.is_file(path):
        return ArrayFile(text)
    return opened(text)
