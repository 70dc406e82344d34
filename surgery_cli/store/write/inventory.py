"""What a run in a bucket has built beside its destination, and what stood there, when it began to put it there.

It stands beside both: where the folder is gone, or something in it, nothing of it is taken for the new checkpoint.
Versions tell an object from what came in its place under its name, whatever the service says of their contents. And
digests tell what the service has copied from what somebody else saves there: nobody asks before it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.stored_values import are_same, whole_file
from surgery_cli.store.write.commit_marks import companion_of, without_marks
from surgery_cli.store.write.many_objects import copy_below, objects_at

_LOST: Final = 0
"""The version of no object."""


class Kept(msgspec.Struct, frozen=True):
    """An object that was built, as the service tells of it."""

    version: int
    size: int
    digest: str = ""


class Inventory(msgspec.Struct, frozen=True):
    """Both by the names of objects: from the folder on in which it is built, and from that on of the destination."""

    built: dict[str, Kept]
    stood: dict[str, int] = {}
    """The versions of what stood at the destination; nothing where it was put in the place of nothing."""


def inventory_of(built: Path) -> Path:
    """Where it stands for what is built in a folder."""
    return built.with_name(f"{built.name}-objects") / "inventory.json"


def inventory_at(built: Path) -> Inventory | None:
    """It, as far as it can be read; None where nothing was begun to be put anywhere. Raises OSError."""
    place = inventory_of(built)
    filesystem.forget(place)
    if not filesystem.exists(place):
        return None
    try:
        return decode_json(filesystem.read(place), type=Inventory)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # something else was put there
        return Inventory({})


def take_inventory(built: Path, objects: Iterable[Path], stood: Mapping[str, int]) -> None:
    """Write down which objects stand in a folder, as they are now, and what ``stood`` where they go. Raises OSError."""
    kept = {str(place.relative_to(built)): _kept(place) for place in objects}
    _put(built, Inventory(kept, dict(stood)))


def copy_with_inventory(old: Path, built: Path) -> None:
    """Copy what was built to another folder, and its inventory: of what was lost by then, that it is.

    Raises:
        OSError: so; or Replaced: somebody writes to it.
    """
    inventory = inventory_at(old)
    found = {} if inventory is None else versions_of(old, objects_at(old))
    copy_below(old, built)
    if inventory is None:
        return
    copies = versions_of(built, objects_at(built))
    kept = {
        name: msgspec.structs.replace(
            was, version=copies.get(name, _LOST) if found.get(name) == was.version else _LOST
        )
        for name, was in inventory.built.items()
    }
    _put(built, msgspec.structs.replace(inventory, built=kept))


def _put(built: Path, inventory: Inventory) -> None:
    filesystem.put(inventory_of(built), msgspec.json.encode(inventory))


def _kept(place: Path) -> Kept:
    status = filesystem.status(place)
    return Kept(status.st_ino, status.st_size, getattr(status, "digest", ""))


def _agree(one: Kept, other: Kept) -> bool:
    return one.digest != "" and (one.size, one.digest) == (other.size, other.digest)


def versions_of(folder: Path, objects: Iterable[Path]) -> dict[str, int]:
    """The versions of objects in a folder, by their names in it. Raises OSError."""
    return {str(place.relative_to(folder)): filesystem.status(place).st_ino for place in objects}


def first_changed(folder: Path, versions: Mapping[str, int]) -> Path | None:
    """An object in a folder that stands there, and is another than that of this version; None if there is none."""
    found = versions_of(folder, objects_at(folder) if versions else ())
    changed = sorted(name for name in versions if versions[name] != found.get(name, versions[name]))
    return folder / changed[0] if changed else None


def first_lost(built: Path) -> Path | None:
    """An object that was built and is gone, or another by now, or that has come since; None where all is as it was.

    Marks come later, and are copies of one object. The inventory itself may be gone.
    """
    inventory = inventory_at(built)
    if inventory is None:
        return inventory_of(built)
    known = {name: kept.version for name, kept in inventory.built.items()}
    found = versions_of(built, without_marks(objects_at(built)))
    lost = sorted(name for name, _ in known.items() ^ found.items())
    return built / lost[0] if lost else None


def is_untouched(destination: Path, inventory: Inventory) -> bool:
    """True if what stood at the destination stands there, its marks and its record as well, and nothing else."""
    objects = objects_and_record(destination, inventory)
    return versions_of(destination.parent, objects) == inventory.stood


def first_foreign(
    objects: Iterable[Path], destination: Path, built: Path, inventory: Inventory
) -> Path | None:
    """One of the objects at the destination that neither stood there, nor is what was built to come there.

    What was put there by a service that tells no digest of it is read.
    """
    for place in without_marks(objects):
        name = str(place.relative_to(destination.parent))
        has_stood = inventory.stood.get(name) == filesystem.status(place).st_ino
        if not has_stood and not _is_built(place, name, built, inventory):
            return place
    return None


def is_all_there(destination: Path, built: Path, inventory: Inventory) -> bool:
    """True if all that was built stands at the destination, and nothing else; but for marks."""
    found = {
        str(place.relative_to(destination.parent)): place
        for place in without_marks(objects_and_record(destination, inventory))
    }
    return found.keys() == inventory.built.keys() and all(
        _is_built(place, name, built, inventory) for name, place in found.items()
    )


def objects_and_record(destination: Path, inventory: Inventory) -> list[Path]:
    """What stands at the destination, and beside it where a record stood there, or is to come there."""
    record = companion_of(destination)
    has_record = record.name in inventory.stood or record.name in inventory.built
    return [*objects_at(destination), *(objects_at(record) if has_record else ())]


def _is_built(place: Path, name: str, built: Path, inventory: Inventory) -> bool:
    """True for an object of that name which holds what was built: by the digests, or else as long as that stands."""
    there, kept = _kept(place), inventory.built.get(name)
    if kept is None or kept.size != there.size:
        return False
    return _agree(kept, there) or _is_copy(place, built / name, kept)


def _is_copy(place: Path, built: Path, kept: Kept) -> bool:
    """True for the bytes of an object that still is what was built."""
    try:
        is_kept = _kept(built).version == kept.version
    except FileNotFoundError:
        return False
    return is_kept and are_same(whole_file(place), whole_file(built))
