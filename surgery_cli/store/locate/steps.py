"""The steps of a root: which there are, which is opened, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import is_committed
from surgery_cli.store.filesystem.listing import Listing, holds_pytree, starts_as_msgpack
from surgery_cli.store.filesystem.names import is_leftover, is_record, step_name, unfinished_name
from surgery_cli.store.locate.being_written import refuse_locked_in
from surgery_cli.store.locate.items import (
    STEP_METADATA,
    V1_MARK,
    StepItems,
    is_step,
    step_items,
)
from surgery_cli.store.locate.step_formats import formats_text, step_formats
from surgery_cli.words.lists import quoted

_ROOT_FOLDERS: Final = frozenset({"metadata", "descriptor"})
_ROOT_FILES: Final = frozenset({"_ROOT_METADATA"})


SURE_PREFIXES: Final = frozenset({"", "checkpoint", "ckpt", "step"})
"""Before a number, they make a name that of a step; any other word may be anybody's (`resnet_18`)."""
_SHOWN_CHECKPOINTS: Final = 8
FILES_OF_A_STEP: Final = frozenset({STEP_METADATA, V1_MARK})
"""What stands in a step, and in no root."""


class Step(NamedTuple):
    """A step of a root, as its directory's (or Flax file's) name gives it."""

    name: str
    number: int
    prefix: str
    is_finished: bool
    fault: CheckpointError | None = None
    """Why nothing more can be said of it: the system does not give what stands there."""


def find_steps(listing: Listing, *, is_staged: bool = False) -> list[Step]:
    """The steps in a directory, by number; unfinished ones too, and those that cannot be read."""
    found = []
    for name in listing.folders | listing.files:
        intended = unfinished_name(name) or name
        named = step_name(intended)
        if named is None or is_leftover(name):
            continue
        if intended != name:
            found.append(Step(name, named.number, named.prefix, is_finished=False))
            continue
        try:
            is_finished = _is_finished_step(listing, name, is_staged=is_staged)
        except CheckpointError as error:
            found.append(Step(name, named.number, named.prefix, is_finished=True, fault=error))
            continue
        if is_finished is not None:
            found.append(Step(name, named.number, named.prefix, is_finished))
    return sorted(found, key=lambda s: (s.number, s.name))


def steps_at(path: Path) -> list[Step]:
    """The steps that stand side by side at a path, by number; none in what is one checkpoint."""
    if not filesystem.is_folder(path):
        return []
    listing = Listing.of(path)
    if listing.files & FILES_OF_A_STEP or holds_pytree(listing):
        return []
    steps = find_steps(listing)
    return [] if is_called_a_step(listing, steps) else steps


def is_called_a_step(listing: Listing, steps: list[Step]) -> bool:
    """Whether its name makes a directory of trees one step, though they are called like steps themselves.

    Anybody may call a folder `run_3`: it is a root if nothing but steps stands in it. A plain number is a step.
    """
    own = step_name(listing.path.name)
    if own is None:
        return False
    trees = items_among(listing, steps).pytrees.keys()
    return bool(trees) and (not own.prefix or not trees <= {step.name for step in steps})


def items_among(listing: Listing, steps: list[Step]) -> StepItems:
    """The items of what may be a step; what is called like one, and may not be looked into, is none of them."""
    return step_items(listing.without(step.name for step in steps if step.fault is not None))


def _is_finished_step(root: Listing, name: str, *, is_staged: bool) -> bool | None:
    """Whether what is called like a step is a finished one; None if it is no step.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = root.path / name
    if name in root.files:
        return True if starts_as_msgpack(path) else None
    inside = Listing.of(path)
    if not is_step(inside):
        return None
    is_whole = is_staged or is_committed(path, inside.files)
    return is_whole and not inside.unfinished() and "_CHECKPOINT_DELETION" not in inside.files


def refuse_mixture(listing: Listing, steps: list[Step]) -> None:
    """Refuse to read a folder of unrelated checkpoints (`cnn`, `resnet_18`) as steps.

    Raises:
        PlanError: names that need not mean steps stand beside checkpoints that are none.
    """
    if any(s.prefix in SURE_PREFIXES for s in steps):
        return
    names = {s.name for s in steps}
    for name in listing.own_folders():
        if name not in names and is_step(Listing.of(listing.path / name)):
            raise PlanError(
                f"'{listing.path}' holds several checkpoints: '{name}', '{steps[-1].name}'",
                why=f"'{steps[-1].name}' may be a step, but '{name}' beside it is none",
                fix=f"name one of them: '{listing.path / name}'",
            )


def refuse_several(listing: Listing) -> None:
    """Refuse to read a folder of unrelated checkpoints as one step whose items they are.

    The items of a step have no ``_CHECKPOINT_METADATA`` of their own: the step has it.

    Raises:
        PlanError: a folder in it is a whole checkpoint, or a root with steps.
        CheckpointError: a run of ours is writing the only one, or was killed meanwhile.
    """
    whole = checkpoints_in(listing)
    if not whole:
        return
    if len(whole) == 1:
        refuse_locked_in(listing.path)
    held = "several checkpoints: name one" if len(whole) > 1 else "a checkpoint: name it"
    raise PlanError(
        f"'{listing.path}' holds {held}",
        why=quoted(whole, _SHOWN_CHECKPOINTS),
        fix=f"e.g. '{listing.path / whole[0]}'",
    )


def checkpoints_in(listing: Listing) -> list[str]:
    """The folders in a directory that are no items of it, but checkpoints of their own, or roots with steps."""
    if holds_pytree(listing) or listing.files & FILES_OF_A_STEP:
        return []
    return [name for name in listing.own_folders() if _is_whole(listing.path / name)]


def _is_whole(path: Path) -> bool:
    """True for a folder that was saved by itself, or that holds finished steps; not for an item of a step."""
    listing = Listing.of(path)
    if listing.files & FILES_OF_A_STEP:
        return True
    return not holds_pytree(listing) and any(step.is_finished for step in find_steps(listing))


def belongs_to_root(path: Path) -> bool:
    """True for Orbax's own files and folders beside the steps."""
    return path.name in (_ROOT_FOLDERS if filesystem.is_folder(path) else _ROOT_FILES)


def beside_steps(listing: Listing, steps: list[Step]) -> list[Path]:
    """What stands beside the steps; not leftovers, unfinished saves, links to a step (`latest`), records of surgery."""
    names = {s.name for s in steps}
    targets = {listing.path / name for name in names}
    found = []
    for name in sorted((listing.files | listing.folders) - names):
        path = listing.path / name
        if is_leftover(name) or is_record(name) or unfinished_name(name) is not None:
            continue
        if filesystem.is_link(path) and filesystem.real(path) in targets:
            continue
        found.append(path)
    return found


def refuse_several_formats(root: Path, finished: Iterable[Step]) -> None:
    """Refuse to say which of the finished steps of a root is the newest, where they are named in several formats.

    Raises:
        PlanError: so; with the steps of each.
    """
    formats = step_formats(step.name for step in finished)
    if len(formats) > 1:
        newest = dict.fromkeys(root / names[-1] for names in formats.values())
        raise PlanError(
            f"the steps of '{root}' are named in {len(formats)} formats: {formats_text(formats)}",
            why="a script sees those of its own format alone, and the newest of each is another one",
            fix=f"name one, as {quoted(newest, 4, word='or')}",
        )


def pick(
    root: Path, wanted: int | None, steps: list[Step], *, address: str = ""
) -> tuple[Step, str]:
    """The step to open, and why that one; ``address`` is what stood before ``@N``, if the step was named so.

    Raises:
        CheckpointError: the step cannot be read, or it, or every step, is unfinished.
        PlanError: there is no such step, or several could be meant.
    """
    finished = [s for s in steps if s.is_finished]
    if wanted is None:
        if not finished:
            names = ", ".join(f"'{s.name}'" for s in steps[-3:])
            refuse_locked_in(root)
            raise CheckpointError(
                f"'{root}' has no finished step",
                why=f"every save in it was interrupted: {names}",
                fix="use another root",
            )
        refuse_several_formats(root, finished)
        wanted, why = finished[-1].number, "newest finished"
    else:
        why = "as asked"
    found = [s for s in finished if s.number == wanted]
    if len(found) > 1:
        raise PlanError(
            f"'{root}' has {len(found)} directories for step {wanted}: "
            + ", ".join(f"'{s.name}'" for s in found),
            why="they may differ",
            fix=f"name one: '{root / found[0].name}'",
        )
    if found and found[0].fault is not None:
        raise _unreadable(found[0], [s for s in finished if s.fault is None])
    if found:
        return found[0], why
    refuse_locked_in(root, wanted)
    for other in steps:
        if other.number == wanted:
            raise CheckpointError(
                f"step {wanted} in '{root}' is unfinished: '{other.name}'",
                why="its save, or a deletion in it, was interrupted before it was done",
                fix=f"use a finished step: {_some(finished) or 'there is none here'}",
            )
    close = min((s.number for s in finished), key=lambda n: abs(n - wanted), default=None)
    # `--step` is about SRC; a donor, named as `ROOT@N`, is not reached by it
    spelled = f"{address}@{close}" if address else f"--step {close}"
    raise PlanError(
        f"there is no step {wanted} in '{root}'",
        why=f"finished steps: {_some(finished) or 'none'}",
        fix=f"`{spelled}` is the nearest" if finished else "",
    )


def _unreadable(step: Step, others: list[Step]) -> CheckpointError:
    """The error for a step that cannot be read: what the system says of it, and which steps can be."""
    assert step.fault is not None
    problem = step.fault.problems[0]
    if not others:
        return step.fault
    fix = f"{problem.fix}; steps that can be read: {_some(others)}"
    return CheckpointError(f"step {step.number}: {problem.what}", why=problem.why, fix=fix)


def _some(steps: list[Step]) -> str:
    """The last few step numbers."""
    numbers = ", ".join(str(s.number) for s in steps[-8:])
    return f"…, {numbers}" if len(steps) > 8 else numbers
