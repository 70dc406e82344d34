"""What stands at a destination and goes with it: a run is more than the one step that takes its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from surgery_cli.errors import DestinationError, SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import (
    Listing,
    holds_pytree,
    is_leftover,
    unfinished_name,
)
from surgery_cli.store.filesystem.protocol import Entry
from surgery_cli.store.locate.items import step_items
from surgery_cli.store.locate.location import locate
from surgery_cli.store.locate.steps import find_steps
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN_STEPS: Final = 4

_TELLING: Final = frozenset({"_METADATA", "_CHECKPOINT_METADATA", "checkpoint"})
"""A folder with one of these is a tree, or a step."""


def replaced_notes(destination: Path, *, force: bool) -> list[Consequence]:
    """What goes with a destination that is replaced whole: a run is more than the one step that takes its place."""
    if not force or filesystem.is_link(destination) or not (steps := steps_replaced(destination)):
        return []
    said = f"`--force` replaces '{destination}' whole: its {steps} go, and the result is one step"
    return [Consequence(DocsPage.FORCE, said)]


def steps_replaced(destination: Path) -> str:
    """The steps of a run of several that stands at a destination, as words; "" where none does."""
    steps = steps_standing_at(destination)
    return f"{len(steps)} steps ({listed(steps, _SHOWN_STEPS)})" if len(steps) > 1 else ""


def steps_standing_at(destination: Path) -> list[int]:
    """The finished steps of a run that stands at a destination."""
    if not filesystem.is_folder(destination) or not filesystem.entries(destination):
        return []
    try:
        return locate(str(destination.absolute())).steps
    except SurgeryError:  # what it is, is said by who looks whether it may be replaced
        return []


def refuse_to_lose_others(destination: Path) -> None:
    """Refuse to replace a checkpoint with others inside of it, which are no part of it and would go as well.

    Raises:
        DestinationError: so; they are named.
    """
    if not (lost := _others_inside(destination)):
        return
    them = "a checkpoint of its own" if len(lost) == 1 else "checkpoints of their own"
    raise DestinationError(
        f"`--force` would remove {quoted(lost, _SHOWN_STEPS)} with '{destination}'",
        why=f"{them}, and no part of what would be replaced",
        fix=f"move {'it' if len(lost) == 1 else 'them'} to another place first, or name another destination",
    )


def _others_inside(destination: Path) -> list[Path]:
    """The checkpoints below one that are not it, nor steps or items of it, by what tells each; the topmost ones."""
    if filesystem.is_link(destination) or not filesystem.is_folder(destination):
        return []
    everything = list(
        _below(destination)
    )  # first, as in a bucket no folder is listed by itself then
    if not any(entries for _, entries in everything):
        return []
    own, whole = _parts(destination)
    found: list[Path] = []
    for prefix, entries in everything:
        parts = [part for part in prefix.split("/") if part]
        names = {entry.name for entry in entries if entry.is_file}
        if not names & _TELLING or any(is_leftover(n) or unfinished_name(n) for n in parts):
            continue
        folder = destination.joinpath(*parts)
        inside = {folder, *folder.parents}
        if folder not in own and not inside & {*whole, *found}:
            found.append(folder)
    return [one for one in found if not {*one.parents} & {*found}]


def _below(folder: Path, prefix: str = "") -> Iterator[tuple[str, Collection[Entry]]]:
    """As ``filesystem.below``, but what a link leads to is not below: it stays when the link goes."""
    if isinstance(folder, BucketPath):
        yield from filesystem.below(folder)
        return
    entries = filesystem.entries(folder)
    yield prefix, entries
    for entry in entries:
        if entry.is_folder and not entry.is_link:
            yield from _below(folder / entry.name, f"{prefix}{entry.name}/")


def _parts(destination: Path) -> tuple[set[Path], set[Path]]:
    """Folders that belong to a checkpoint, and those of which all below them does."""
    own, whole, steps = {destination}, set[Path](), [destination]
    if locate(str(destination.absolute())).shape == "root":
        steps = [destination / one.name for one in find_steps(Listing.of(destination))]
    for step in steps:
        own.add(step)
        if not filesystem.is_folder(step) or holds_pytree(inside := Listing.of(step)):
            continue
        try:
            items = step_items(inside)
        except SurgeryError:  # what cannot be read in a run goes with it
            whole.add(step)
        else:
            own.update(items.pytrees.values())
            whole.update(items.others.values())
    return own, whole
