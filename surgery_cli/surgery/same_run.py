"""A result that is a new step of the run whose step is edited: where it goes, and what a manager makes of it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from surgery_cli.errors import CheckpointError, DestinationError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.salvage.opening import with_rescue
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, reading, removal_of
from surgery_cli.store.filesystem.names import StepName, step_name
from surgery_cli.store.locate.location import Location, locate
from surgery_cli.store.locate.step_formats import renumbered, step_formats
from surgery_cli.store.locate.steps import SURE_PREFIXES, Step, find_steps
from surgery_cli.store.write.destination import being_written, real_path
from surgery_cli.surgery.named_steps import name_step_read
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.repeated_step import or_removed, read_before
from surgery_cli.surgery.replaced import steps_replaced, steps_standing_at
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class Asked(NamedTuple):
    """What a run is asked for: what it reads, where its result goes, and what it is told beside the plan."""

    source: str
    destination: str
    options: Options
    taken: DestinationError | None = None
    """With `--resume`, what is wrong unless the step that stands there is what this very command has made."""


def into_run(source: str, destination: str, options: Options) -> Asked:
    """What is meant, where `--as-step N` goes into the run that the source is a step of.

    Then it is the step itself that is read, and a new one beside it that is written; else everything is as it was.

    Raises:
        DestinationError: the run has that step, or what is in it would be replaced; or it is another run.
        CheckpointError: it could not be looked at.
    """
    asked = Asked(source, destination, options)
    if options.as_step is None or step_name(str(options.as_step)) is None or not destination:
        return asked
    target = path_at(destination)
    try:
        with reading(path_at(source)):
            location = locate(source, step=options.step, item=options.item)
    except CheckpointError as error:
        raise with_rescue(error, path_at(source)) from None
    step = _step_of(location)
    if step is None or filesystem.real(target) != step.parent:  # however the run is named
        refuse_another_run(target, source, options)
        return asked
    steps = _steps_of(target)
    new = target / renumbered(step.name, options.as_step, _finished(steps))
    if options.force:
        first = f", or remove that step first: `{removal_of(new)}`"
        raise DestinationError(
            "`--force` would replace what is in the run itself",
            why=f"'{destination}' is the run that is read: `--as-step` adds a step to it",
            fix=f"leave `--force` out, and give a number that is free{first * filesystem.is_taken(new)}",
        )
    named = step_name(step.name)
    prefix = "" if named is None else named.prefix
    of_run = new.name if being_written(new) else ""  # whose that is, is said where it is looked for
    taken = None
    try:
        _refuse_taken(target, steps, options.as_step, prefix=prefix, but=of_run)
    except DestinationError as error:
        if not options.resume or new.name not in _finished(steps):
            raise
        step = read_before(location, new, steps, error) or step
        if step == filesystem.real(new):  # nothing is made of itself
            raise
        free = max(one.number for one in steps) + 1
        named = step_name(step.name)
        read = str(step) if named is None else f"{destination}@{named.number}"
        taken = DestinationError(replace(error.problems[0], fix=or_removed(new, free, read)))
    name_step_read(location, target, step=None if named is None else named.number)
    item = options.item if location.shape == "root" else None
    options = replace(options, step=None, as_step=None, item=item)
    return Asked(str(step), str(new), options, taken)


def refuse_another_run(target: Path, source: str, options: Options) -> None:
    """With `--as-step N` that has not led ``into_run``, refuse a run to which the source does not belong.

    Raises:
        DestinationError: such a run stands there, and is no earlier result, of a single step, that may be replaced.
    """
    if options.as_step is None:
        return
    may_stand, several = options.force or options.resume, steps_replaced(target)
    if options.resume and not options.force and options.as_step in steps_standing_at(target):
        return  # a training may have gone on in what this very command has made
    if several or (steps_standing_at(target) and not may_stand):
        raise DestinationError(
            f"'{target}' is a run to which '{source}' does not belong",
            why="`--as-step` adds a step to the run that is read, and to no other;"
            f" `--force` would remove its {several or 'one step'}",
            fix=f"write to another place, and copy the step into '{target}' yourself",
        )


def check_new_step(target: Path, prepared: Prepared) -> None:
    """A new step of the same run has a number of its own there, and a name like the others.

    Raises:
        DestinationError: it has not; readers would take it for another, or could not tell which to take.
    """
    own, named = step_beside(target, prepared), step_name(target.name)
    if named is None:
        return
    if own is None:
        _refuse_second_name(target, named)
        return
    steps = _steps_of(target.parent)
    wanted = renumbered(own.name, named.number, _finished(steps))
    if wanted != target.name:
        raise DestinationError(
            f"'{target}' is not how this run names its steps",
            why=f"the step that is read is called '{own.name}'",
            fix=f"name it '{target.parent / wanted}'",
        )
    _refuse_taken(target.parent, steps, named.number, prefix=named.prefix, but=target.name)


def _refuse_second_name(target: Path, named: StepName) -> None:
    """Refuse a step that a run has under another name: no reader could tell which of the two is meant."""
    beside = filesystem.names(target.parent) if filesystem.is_folder(target.parent) else []
    steps = ((name, step_name(name)) for name in beside if name != target.name)
    if any(step is not None and step.number == named.number for _, step in steps):
        _refuse_taken(
            target.parent,
            _steps_of(target.parent),
            named.number,
            prefix=named.prefix,
            but=target.name,
        )


def _steps_of(run: Path) -> list[Step]:
    with reading(run):
        return find_steps(Listing.of(run))


def _finished(steps: list[Step]) -> list[str]:
    return [step.name for step in steps if step.is_finished]


def _refuse_taken(run: Path, steps: list[Step], number: int, *, prefix: str, but: str = "") -> None:
    """``but``: a name of that step which is asked after elsewhere; ``prefix``: of the names of the run's steps.

    Raises:
        DestinationError: the run has a step of that number, finished or not, in whichever spelling.
    """
    for step in steps:
        is_of_run = prefix == step.prefix or {prefix, step.prefix} <= SURE_PREFIXES
        if step.number == number and step.name != but and is_of_run:
            state = "a finished step" if step.is_finished else "a save that is not finished"
            raise DestinationError(
                f"step {number} of '{run}' is taken",
                why=f"'{step.name}' is {state}",
                fix=f"take a number that is free, e.g. {max(s.number for s in steps) + 1}",
            )


def same_run_notes(target: Path, prepared: Prepared) -> list[Consequence]:
    """What a new step of the same run means for who restores from it, and for the program that writes it."""
    own, named = step_beside(target, prepared), step_name(target.name)
    if own is None or named is None:
        return []
    formats = step_formats([*_finished(_steps_of(own.parent)), target.name])
    alike = {name for names in formats.values() if target.name in names for name in names}
    newest = max(
        (other.number for name in alike - {target.name} if (other := step_name(name))), default=-1
    )
    if named.number > newest:
        order = f"it will be the newest step, which is what a manager restores unless told: before it was {newest}"
    else:
        order = f"the newest step stays {newest}: restore this one by its number"
    notes = [
        f"a new step of the run that it is made from; {order}",
        "a manager that is running listed the steps when it began: it does not see this one until it is started again",
    ]
    left = counters_in(prepared.draft.tree).difference(prepared.draft.changed)
    inside = sorted(map(str, left))
    if inside:
        edit = f"--to {named.number}"
        new = shlex.quote(f"{target.parent}@{named.number}")
        notes.append(
            f"{quoted(inside, 3)} inside still counts as in the step that it is made from:"
            f" `surgery set {new} NEW {shlex.quote(inside[0])} {edit}`, or that edit in the plan, sets it"
        )
    return [Consequence(DocsPage.ADDED_STEP, said) for said in notes]


def counters_in(tree: TreeSpec) -> set[LeafPath]:
    """The leaves that count steps and nothing else, as `TrainState.step` does."""
    clocks = survey(tree).clocks.values()
    return {clock.path for clock in clocks if clock.drives == "nothing"}


def step_beside(target: Path, prepared: Prepared) -> Path | None:
    """The step that is read, where the result is to stand beside it as one of the same run, by its name.

    `expA_1` beside `expB_1` is none.
    """
    step = _step_of(prepared.checkpoint.location)
    if step is None or prepared.checkpoint.location.shape == "root":
        return None
    names = [name for each in (step, target) if (name := step_name(each.name)) is not None]
    prefixes = {name.prefix for name in names}
    is_one_run = len(prefixes) == 1 or prefixes <= SURE_PREFIXES
    return step if is_one_run and real_path(target).parent == step.parent else None


def _step_of(location: Location) -> Path | None:
    """The real place of the step that was opened, if its name is that of a step."""
    step = location.step_directory if location.shape in ("root", "step") else location.root
    if location.shape == "item" or step is None or step_name(step.name) is None:
        return None
    return filesystem.real(step)
