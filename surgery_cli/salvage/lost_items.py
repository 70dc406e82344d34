"""Items of a broken step that are lost as a whole: which these are, and how many leaves each had."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from surgery_cli.errors import SurgeryError
from surgery_cli.proof.on_record import lost_among
from surgery_cli.proof.surgery_json import Record
from surgery_cli.salvage.file import BrokenFile
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.salvage.states import LostItem
from surgery_cli.salvage.steps import step_name_of
from surgery_cli.salvage.structure import WHOLE
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import is_tree, reading
from surgery_cli.store.locate.steps import steps_at
from surgery_cli.store.open.item import PytreeItem


def lost_trees(
    place: BrokenPlace,
    items: Mapping[str, BrokenItem | BrokenFile],
    empty: Collection[str],
    record: Record | None,
) -> dict[str, str]:
    """Items that are lost, each with why: those of which nothing is there, and of ``items`` those without a leaf.

    ``empty`` are the names of these.
    """
    found = dict(place.lost)
    for name in empty:
        structure = items[name].structure
        if structure.origin not in WHOLE or structure.faults:
            found[name] = "nothing of its leaves is left"
    for name in [] if record is None else lost_among(record, [*place.items]):
        if name not in place.lost and not filesystem.is_taken(place.root / name):
            found[name] = "it is on record, and nothing of it is left"
    return found


def counted_items(
    place: BrokenPlace,
    trees: Mapping[str, str],
    others: Mapping[str, str],
    record: Record | None,
) -> list[LostItem]:
    """What is lost as a whole, trees with the number of their leaves, where something tells it."""
    found = []
    for name, why in {**trees, **others}.items():
        if name in others or name in place.no_trees:
            found.append(LostItem(name, why))
        else:
            found.append(LostItem(name, why, True, *_count(place, name, record)))
    return found


def _count(place: BrokenPlace, name: str, record: Record | None) -> tuple[int | None, str]:
    """How many leaves an item had, by what is on record of all leaves, or in the steps beside; and which says so."""
    if record is not None and record.sealed is not None:
        known = sum(key.startswith(f"{name}/") for key in record.digests)
        if known:
            return known, "`surgery.json`"
    for step in _steps_beside(place.root):
        with suppress(OSError, SurgeryError):
            if is_tree(step / name):
                with reading(step):
                    return len(PytreeItem(step / name).tree), f"step {_number(step)}"
    return None, ""


def _steps_beside(root: Path) -> Iterator[Path]:
    """The finished steps of the run, those before the broken one first, the nearest of them before others."""
    if step_name_of(root) is None:
        return
    own = _number(root)
    with suppress(OSError, SurgeryError):
        others = [step for step in steps_at(root.parent) if step.is_finished]
        others.sort(key=lambda step: (step.number > own, abs(step.number - own)))
        yield from (root.parent / step.name for step in others if step.name != root.name)


def _number(step: Path) -> int:
    named = step_name_of(step)
    assert named is not None
    return named.number
