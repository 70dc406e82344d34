"""The steps of a run that is broken: by their numbers, in folders or files, finished or not."""

from __future__ import annotations

import re
from pathlib import Path

from surgery_cli.errors import PlanError
from surgery_cli.salvage.file import format_of_broken
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import is_committed
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.filesystem.names import StepName, step_name, unfinished_name
from surgery_cli.words.lists import quoted


def step_named(path: Path) -> Path | None:
    """The step that `ROOT@N` or `ROOT@latest` names, finished or not; a save beside one of that number is another.

    Raises:
        PlanError: several have that number.
    """
    front, at, number = path.name.rpartition("@")
    root = path.with_name(front) if front else path
    if not at or not filesystem.is_folder(root):
        return None
    if number == "latest":  # of those that were finished, whatever has become of it
        numbers = [step.number for place in _steps(root) if (step := _finished(place))]
        number = str(max(numbers, default=""))
    if not number.isdecimal():
        return None
    found = _steps_numbered(root, int(number))
    if len(found) > 1:
        raise several(path, found)
    return found[0] if found else None


def step_name_of(place: Path) -> StepName | None:
    return step_name(unfinished_name(place.name) or place.name)


def _finished(place: Path) -> StepName | None:
    """The name of a step that was saved to its end."""
    is_whole = filesystem.is_file(place) or is_committed(place, Listing.of(place).files)
    return step_name(place.name) if is_whole else None


def _steps_numbered(root: Path, number: int) -> list[Path]:
    """The steps of that number; saves that were not finished, only where no other is."""
    found = []
    for place in _steps(root):
        step = step_name_of(place)
        if step is not None and step.number == number:
            found.append(place)
    return [place for place in found if unfinished_name(place.name) is None] or found


def _steps(root: Path) -> list[Path]:
    """What may be a step by its kind: a folder, or a file of Flax."""
    return [*folders_in(root), *files_of_steps(root)]


def files_of_steps(root: Path) -> list[Path]:
    """The files in a folder that have a step's name and hold, or held, a tree."""
    files = [root / e.name for e in filesystem.entries_if_any(root) if e.is_file]
    return [file for file in files if step_name_of(file) and format_of_broken(file) is not None]


def several(path: Path, found: list[Path]) -> PlanError:
    places = sorted(found, key=_by_number)
    return PlanError(
        f"'{path}' is no one checkpoint",
        why=f"trees stand in {quoted((place.name for place in places), 4, word='and')}",
        fix=f"name one of them, as '{named_in_run(places[-1])}'",
    )


def named_in_run(place: Path) -> str:
    """A step by its run and number, of which a rescue makes a run, if no other has that number; else by its path."""
    named = step_name_of(place)
    if named is not None:
        address = place.parent.with_name(f"{place.parent.name}@{named.number}")
        is_it = _steps_numbered(place.parent, named.number) == [place]
        return str(address if is_it and not filesystem.is_taken(address) else place)
    return str(place)


def _by_number(place: Path) -> list[tuple[int, str]]:
    """The name by its words and numbers: `50` stands before `100`."""
    parts = re.split(r"(\d+)", place.name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def folders_in(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in filesystem.entries_if_any(folder) if entry.is_folder]
