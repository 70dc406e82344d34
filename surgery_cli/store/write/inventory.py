"""What a run has built beside a destination in a bucket, object by object, when it began to put that in its place.

It stands beside both: where the folder is gone, or something in it, nothing of it is taken for the new checkpoint.
Versions tell an object from what came in its place under its name, whatever the service says of their contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.orbax.stored_values import are_same, whole_file
from surgery_cli.store.write.many_objects import objects_at


def inventory_of(built: Path) -> Path:
    """Where it stands for what is built in a folder."""
    return built.with_name(f"{built.name}-objects") / "inventory.json"


def without_marks(objects: Iterable[Path]) -> list[Path]:
    return [place for place in objects if place.name != COMMIT_MARK]


def take_inventory(built: Path, objects: Iterable[Path]) -> None:
    """Write down which objects stand in a folder, each as it is now. Raises OSError."""
    filesystem.put(inventory_of(built), msgspec.json.encode(versions_of(built, objects)))


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
    if not filesystem.exists(inventory_of(built)):
        return inventory_of(built)
    known = decode_json(filesystem.read(inventory_of(built)), type=dict[str, int])
    found = versions_of(built, without_marks(objects_at(built)))
    lost = sorted(name for name, _ in known.items() ^ found.items())
    return built / lost[0] if lost else None


def is_copy(one: Path, other: Path) -> bool:
    """True for the same bytes; they are read only where the service's digests are none of these."""
    a, b = filesystem.status(one), filesystem.status(other)
    if a.st_size != b.st_size:
        return False
    same: str = getattr(a, "digest", "")
    return (same != "" and same == getattr(b, "digest", "")) or are_same(
        whole_file(one), whole_file(other)
    )
