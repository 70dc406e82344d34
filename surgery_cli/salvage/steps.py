"""The steps of a run that is broken: by their numbers, in folders or files, finished or not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from surgery_cli.errors import CheckpointError, NotPermittedError, PlanError
from surgery_cli.salvage.remains import is_meant_as_step
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import is_committed
from surgery_cli.store.filesystem.listing import Listing, holds_pytree
from surgery_cli.store.filesystem.names import StepName, step_name, unfinished_name
from surgery_cli.store.locate.steps import (
    FILES_OF_A_STEP,
    SURE_PREFIXES,
    Step,
    find_steps,
    is_called_a_step,
    refuse_mixture,
    refuse_several_formats,
)
from surgery_cli.words.lists import quoted


def steps_in(root: Path) -> list[Step]:
    """The steps of a run, by number: those that every command knows, and those of which less, or nothing, is left.

    None in what is one checkpoint.
    """
    if not filesystem.is_folder(root):
        return []
    listing = Listing.of(filesystem.real(root))
    if listing.files & FILES_OF_A_STEP or holds_pytree(listing):
        return []
    steps = find_steps(listing)
    known, prefixes = {step.name for step in steps}, prefixes_of_steps(steps)
    for name in (listing.files | listing.folders) - known - listing.special:
        named, place = step_name(name), listing.path / name
        with suppress(NotPermittedError):
            if named is not None and is_meant_as_step(place, named.prefix, prefixes):
                is_whole = name in listing.files or is_committed(place, Listing.of(place).files)
                steps.append(Step(name, named.number, named.prefix, is_whole))
    steps.sort(key=lambda step: (step.number, step.name))
    return [] if is_called_a_step(listing, steps) else steps


def prefixes_of_steps(steps: Iterable[Step]) -> frozenset[str]:
    """What stands before the number where a name means a step, though nothing in it shows one."""
    return SURE_PREFIXES.union(step.prefix for step in steps)


def step_named(path: Path) -> Path | None:
    """The step that `ROOT@N` or `ROOT@latest` names, finished or not; a save beside one of that number is another.

    Raises:
        PlanError: several have that number; or, of which the newest is asked, are named in several formats.
    """
    front, at, number = path.name.rpartition("@")
    root = path.parent / front if front else path
    if not at or not (number == "latest" or number.isdecimal()):
        return None
    steps = steps_in(root)
    if number == "latest":  # of those that were finished, whatever has become of it
        finished = [step for step in steps if step.is_finished]
        if not finished:
            return None
        refuse_mixture(Listing.of(root), steps)
        refuse_several_formats(root, _not_empty(root, finished))
        number = str(finished[-1].number)
    found = _numbered(root, steps, int(number))
    if len(found) > 1:
        raise several(path, found)
    return found[0] if found else None


def step_name_of(place: Path) -> StepName | None:
    return step_name(unfinished_name(place.name) or place.name)


def _numbered(root: Path, steps: Iterable[Step], number: int) -> list[Path]:
    """The steps of that number; saves that were not finished, or are empty, only where no other is."""
    found = _not_empty(root, [step for step in steps if step.number == number])
    return [root / step.name for step in [one for one in found if one.is_finished] or found]


def _not_empty(root: Path, steps: list[Step]) -> list[Step]:
    """Those in which anything is; all, if that is none."""
    return [step for step in steps if not is_empty(root / step.name)] or steps


def is_empty(place: Path) -> bool:
    """True for a folder, or a file, in which nothing is; False where this user may not look."""
    with suppress(OSError):
        if filesystem.is_file(place):
            return not filesystem.size(place)
        return filesystem.is_folder(place) and not filesystem.names(place)
    return False


def nothing_left(place: Path) -> CheckpointError:
    """The error for a step, or what may have been one, that is empty."""
    root = place.parent
    others = [step for step in steps_in(root) if step.is_finished and step.name != place.name]
    others = [step for step in others if not is_empty(root / step.name)]
    another = f"; or name another step: '{named_in_run(root / others[-1].name)}'" if others else ""
    return CheckpointError(
        f"nothing is left in '{place}'",
        why="it is empty",
        fix=f"copy it again from where it is whole{another}",
    )


def several(path: Path, found: list[Path]) -> PlanError:
    places = sorted(found, key=_by_number)
    empty = [place.name for place in places if is_empty(place)]
    best = [place for place in places if place.name not in empty] or places
    are = "are" if len(empty) > 1 else "is"
    also = f", and {quoted(empty, 4, word='and')} {are} empty" if empty else ""
    return PlanError(
        f"'{path}' is no one checkpoint",
        why=f"{quoted((place.name for place in places), 4, word='and')} stand there{also}",
        fix=f"name one of them, as '{named_in_run(best[-1])}'",
    )


def named_in_run(place: Path) -> str:
    """A step by its run and number, of which a rescue makes a run, if no other has that number; else by its path."""
    named = step_name_of(place)
    if named is not None:
        address = place.parent.with_name(f"{place.parent.name}@{named.number}")
        is_it = _numbered(place.parent, steps_in(place.parent), named.number) == [place]
        return str(address if is_it and not filesystem.is_taken(address) else place)
    return str(place)


def _by_number(place: Path) -> list[tuple[int, str]]:
    """The name by its words and numbers: `50` stands before `100`."""
    parts = re.split(r"(\d+)", place.name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def folders_in(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in filesystem.entries_if_any(folder) if entry.is_folder]
