"""Which checkpoints may stand for a broken step: what is named, or of a run its steps before the broken one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote

from surgery_cli.errors import CheckpointError, ServiceFails
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import step_name, unfinished_name
from surgery_cli.store.locate.steps import Step, refuse_several_formats, steps_at
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed


def standing_for(text: str, place: BrokenPlace) -> Iterator[Checkpoint]:
    """The checkpoint that ``text`` names; of a run the steps that open whole and are older, the newest first.

    Raises:
        CheckpointError: (at the end, if nothing was given) there is none.
        PlanError: the steps are named in several formats, each a run of its own.
    """
    root, steps = _run(text)
    if not steps:
        yield open_checkpoint(text)
        return
    older = [step for step in steps if _is_older(root, step, place)]
    found = _Opening(text)
    yield from found.whole(reversed(older))
    number = number_of(place)
    others = [step for step in steps if step not in older and not _is_broken(root, step, place)]
    nearest = sorted(others, key=lambda step: abs(step.number - (number or 0)))
    another = next((f"{text}@{one.location.step}" for one in found.whole(nearest)), None)
    takes = f"`--fill-from {quote(another)}` takes that all the same; or " if another else ""
    raise CheckpointError(
        f"no step of '{text}' is whole and older than '{place.root.name}'",
        why=found.said(steps),
        fix=f"{takes}name another checkpoint",
    )


def like(text: str, place: BrokenPlace) -> Checkpoint:
    """The checkpoint that ``text`` names, for its structure alone; of a run the newest older step, else the newest.

    A step of which names of arrays alone tell what its tree was comes last.

    Raises:
        CheckpointError: none can be opened.
        PlanError: the steps are named in several formats, each a run of its own.
    """
    root, steps = _run(text)
    if not steps:
        return open_checkpoint(text)
    found = _Opening(text)
    others = [step for step in reversed(steps) if not _is_broken(root, step, place)]
    ranked = sorted(others, key=lambda step: not _is_older(root, step, place))
    opened = list[Checkpoint]()
    for one in found.whole(ranked):
        if not one.inferred_items:
            return one
        opened.append(one)
    if opened:
        return opened[0]
    raise CheckpointError(
        f"no step of '{text}' is whole, but for '{place.root.name}' itself"
        if len(others) < len(steps)
        else f"no step of '{text}' is whole",
        why=found.said(steps),
        fix="name another checkpoint",
    )


class _Opening:
    """Steps of a run, opened one by one; ``damaged`` are those that do not open."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._damaged: list[int] = []

    def whole(self, steps: Iterable[Step]) -> Iterator[Checkpoint]:
        for step in steps:
            try:
                checkpoint = open_checkpoint(self._text, step=step.number)
                _ = checkpoint.tree
            except ServiceFails:
                raise
            except CheckpointError:
                self._damaged.append(step.number)
                continue
            yield checkpoint

    def said(self, steps: Iterable[Step]) -> str:
        damaged = listed([str(number) for number in sorted(self._damaged)], word="and")
        cannot = f": {damaged} cannot be opened" if damaged else ""
        return f"steps there: {listed([step.name for step in steps], 8)}{cannot}"


def _run(text: str) -> tuple[Path, list[Step]]:
    """The finished steps of a run, and where it is; none for what is no run.

    Raises:
        PlanError: they are named in several formats.
    """
    root = filesystem.real(path_at(address(text, refusal=CheckpointError)))
    steps = _finished(root)
    if steps:
        refuse_several_formats(root, steps)
    return root, steps


def is_run(text: str) -> bool:
    """True for what names a run, and no step of it."""
    return bool(_finished(filesystem.real(path_at(address(text, refusal=CheckpointError)))))


def _finished(root: Path) -> list[Step]:
    return [step for step in steps_at(root) if step.is_finished]


def path_there(other: Checkpoint, place: BrokenPlace, item: str, inner: LeafPath) -> LeafPath:
    """Where the other checkpoint has, or should have, a leaf of an item of the broken one.

    That is in the item of the same name. A single tree is under its own name in one and the whole tree in the other
    where a save was killed before anything said that what stands beside it is no tree.
    """
    path = place.path(item, inner)
    if item in other.items:
        return other.path_in(item, inner)
    is_only = len(place.items) == 1 and not other.location.prefix_items
    return inner if is_only and path not in other.tree else path


def _is_broken(root: Path, step: Step, place: BrokenPlace) -> bool:
    """True for the broken step itself, or the one around a broken item."""
    return place.root.is_relative_to(filesystem.real(root / step.name))


def _is_older(root: Path, step: Step, place: BrokenPlace) -> bool:
    """True for a step before the broken one; for all others, where its name says no number."""
    if _is_broken(root, step, place):
        return False
    broken = number_of(place)
    return broken is None or step.number < broken


def number_of(place: BrokenPlace) -> int | None:
    """Which step the broken one is, by its name or, of an item, by that of the step around it."""
    names = (place.root.name, place.root.parent.name)
    numbers = [step_name(unfinished_name(name) or name) for name in names]
    return next((named.number for named in numbers if named is not None), None)
