"""How an OCDBT database's B-tree is asked for, and what a node of it must be, by what leads to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

from surgery_cli.inputs.buckets import BucketPath, Replaced
from surgery_cli.inputs.limits import METADATA
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.quiet_start import asked_quietly
from surgery_cli.store.filesystem.read_ahead import FETCHED_BYTES
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.extents import Extent

MANIFEST = "manifest.ocdbt"

Keys: TypeAlias = tuple[bytes, bytes | None]
"""The least key that a node may have, and the least that stands behind it; None for the last node."""

ALL_KEYS: Final[Keys] = (b"", None)


def check_height(node: Mapping[str, Any], expected: int) -> None:
    """A node must be one below what leads to it: what leads to itself, or above, has no end.

    Raises:
        ValueError: it is not.
    """
    if node["height"] != expected:
        raise ValueError(f"a node of height {node['height']} stands where one of {expected} should")


def check_keys(found: Sequence[bytes], expected: Keys) -> None:
    """The keys of a node must be in order, and lie where what leads to it says: others are looked for elsewhere.

    TensorStore refuses a node whose first key is too small; what is too large it does not find, and reads as zeros.

    Raises:
        ValueError: they are not.
    """
    least, end = expected
    is_within = not found or (least <= found[0] and (end is None or found[-1] < end))
    if not is_within or any(one >= other for one, other in pairwise(found)):
        raise ValueError(
            f"the keys of a node, from {found[0]!r} to {found[-1]!r}, do not belong there"
        )


def opened_folder(directory: Path) -> Any:
    """A folder, opened as TensorStore reads it."""
    import tensorstore as ts

    return ts.KvStore.open(filesystem.kvstore(directory), context=new_context()).result()


def manifest_of(directory: Path) -> dict[str, Any]:
    """What the manifest says."""
    import tensorstore as ts

    found: dict[str, Any] = ts.ocdbt.dump(folder_of_manifest(directory)).result()
    return found


def folder_of_manifest(directory: Path) -> Any:
    """A folder in which the manifest is. That of a bucket is read with the other small files, as it was found."""
    METADATA.check(filesystem.size(directory / MANIFEST), f"'{directory / MANIFEST}'")
    if not isinstance(directory, BucketPath):
        return opened_folder(directory)
    import tensorstore as ts

    database = ts.KvStore.open({"driver": "memory"}, context=ts.Context()).result()
    database.write(MANIFEST, filesystem.read(directory / MANIFEST)).result()
    return database


def reader_of(directory: Path, opened: Any | None) -> Callable[[str], Any]:
    """What asks for a node by its location, and gives a future; ``opened``: the folder, where it is by now."""
    import tensorstore as ts

    folder = [] if opened is None else [opened]

    def ask(location: str) -> Any:
        if not folder:
            folder.append(opened_folder(directory))
        return ts.ocdbt.dump(folder[0], location)

    if not isinstance(directory, BucketPath):
        return ask
    return lambda location: asked_quietly(lambda: ask(location))


def kept_alone(directory: Path, node: Extent, near: Any) -> dict[str, bytes]:
    """Read a node that is all of an object in a bucket as that, into ``near``; by its name, where that was done.

    Who goes on from the database needs it, too. What is wrong with one that was not kept is said by who asks for it.
    """
    place = directory / node.file
    if not isinstance(place, BucketPath) or node.length > FETCHED_BYTES:
        return {}
    if not filesystem.is_file(place) or filesystem.size(place) != node.length:
        return {}
    content = asked_quietly(lambda: opened_folder(directory).read(node.file)).result().value
    if len(content) != node.length:
        return {}
    near.write(node.file, content).result()
    return {node.file: content}


def refuse_changed(directory: Path, files: Iterable[str]) -> None:
    """In a bucket, what TensorStore read of nodes may be of other objects than those that were found.

    Raises:
        ServiceFails: the manifest, or one of these files, was replaced or removed.
    """
    if not isinstance(directory, BucketPath):
        return
    places = [directory / name for name in (MANIFEST, *files)]
    found = [_version(place) for place in places]
    filesystem.forget(directory)
    for place, version in zip(places, found, strict=True):
        if _version(place) != version:
            raise unreadable(place, Replaced(str(place)))


def _version(place: Path) -> int | None:
    """Which version of an object there is, as far as is known; None where there is none."""
    try:
        return filesystem.status(place).st_ino
    except FileNotFoundError:
        return None
