"""Whether a destination's filesystem can take what a run writes, asked before any work."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from surgery_cli.errors import DestinationError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.record_places import record_path
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.link_permission import is_sharing_forbidden
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item_plan import ItemPlan, Way
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.store.write.strategy import is_per_leaf
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.quantities import byte_text

_LEAST_SPARE: Final = 1 << 20
_SPARE_PART: Final = 100
"""Beside what it writes, a run wants 1 MiB and a hundredth of that: metadata, directories, the record."""

_RECORD_BYTES_OF_CHANGED: Final = 320
_RECORD_BYTES_OF_DIGEST: Final = 128
"""What `surgery.json` says of a leaf, beside its path: of one that was changed, and the digest of each."""
_RECORD_BYTES_OF_FILE: Final = 64
"""What it says with ``--resume`` of each file that is left to stand there."""

_LARGEST_BLOCK: Final = 4096
"""A file takes whole blocks; what some filesystems of a network call one is far larger than what a file takes there."""

_HOLD_NO_FILES: Final = ("/proc", "/sys")


def check_space(destination: Path, needed: int, prepared: Prepared, options: Options) -> None:
    """Refuse a destination where ``needed`` bytes, what is said of them, or so many new files do not fit.

    Raises:
        DestinationError: there is not enough room, or the system keeps no files there.
    """
    if isinstance(destination, BucketPath):
        return
    parent = standing_parent(destination)
    if any(filesystem.real(parent).is_relative_to(place) for place in _HOLD_NO_FILES):
        raise DestinationError(
            f"'{destination}' cannot be written",
            why=f"'{parent}' shows the system's state, and holds no files",
            fix="name a directory on a disk",
        )
    room = os.statvfs(parent)
    copies = is_all_copied(prepared, destination, options)
    files = sum(files_of_leaves(plan, copies=copies) for plan in prepared.plans.values())
    needed += record_bytes(prepared, options) + files * min(room.f_frsize, _LARGEST_BLOCK)
    needed += _LEAST_SPARE + needed // _SPARE_PART
    free = room.f_bavail * room.f_frsize
    # a total of zero is a filesystem that does not tell
    if room.f_blocks and needed > free:
        raise DestinationError(
            f"'{parent}' has not enough room for '{destination.name}'",
            why=f"about {byte_text(needed)} needed, {byte_text(free)} free",
            fix="free some, or write to another filesystem",
        )
    if room.f_files and files > room.f_favail:
        raise DestinationError(
            f"'{parent}' has not enough room for the files of '{destination.name}'",
            why=f"at least {files:,} new files and directories, and its filesystem takes {room.f_favail:,}"
            " more (`df -i`)",
            fix="remove some files, or write to another filesystem",
        )


def record_bytes(prepared: Prepared, options: Options) -> int:
    """What the record of a result takes, roughly: a line for each changed leaf, and each digest; and the old record."""
    draft, checkpoint = prepared.draft, prepared.checkpoint
    old = record_path(checkpoint)
    count = filesystem.size(old) if filesystem.is_file(old) else 0
    for path in draft.changed:
        count += _RECORD_BYTES_OF_CHANGED + 2 * len(draft.texts[path])
    for path in draft.leaves if options.seal or prepared.is_export else draft.changed:
        count += _RECORD_BYTES_OF_DIGEST + len(draft.texts[path])
    if options.resume:
        files = sum(files_of_leaves(plan, copies=True) for plan in prepared.plans.values())
        count += _RECORD_BYTES_OF_FILE * files
    return count


def is_all_copied(prepared: Prepared, destination: Path | None, options: Options) -> bool:
    """True if what no edit touches cannot be shared: as asked for, on another filesystem, or as another's files."""
    root = prepared.checkpoint.location.root
    if is_copied(root, prepared, destination, options):
        return True
    return destination is not None and any(map(is_sharing_forbidden, _first_files(prepared)))


def is_copied(place: Path, prepared: Prepared, destination: Path | None, options: Options) -> bool:
    """True if the files of a place are not shared: as asked for, or since they are on another filesystem.

    Without a ``destination`` the result is taken to stand beside the source.
    """
    root = prepared.checkpoint.location.root
    beside = root if destination is None else destination
    # a service has no links
    if options.link == "never" or any(isinstance(one, BucketPath) for one in (place, beside)):
        return True
    there = root if destination is None else standing_parent(destination)
    return filesystem.status(there).st_dev != filesystem.status(place).st_dev


def _first_files(prepared: Prepared) -> Iterator[Path]:
    """A data file of each tree that is opened."""
    for item in prepared.checkpoint.items.values():
        if isinstance(item, PytreeItem) and item.store is not None:
            yield from (item.directory / name for name in item.store.data_files[:1])


def files_of_leaves(plan: ItemPlan, *, copies: bool) -> int:
    """The least number of files and directories that the leaves of an item take, hard links not counted.

    Zero for layouts that do not keep every leaf in a directory of its own. ``copies``: there are no hard links.
    """
    if not is_per_leaf(plan.item):
        return 0
    count = len(plan.of(Way.KEEP, Way.MOVE, Way.GRAFT)) + 2 * len(plan.rearranged)
    if copies:
        taken = plan.of(Way.KEEP, Way.MOVE, Way.GRAFT)
        count += sum(len(leaf.origin_array.keys) for leaf in taken)
    for leaf in plan.of(Way.RAW):
        count += 1 + len(leaf.origin_array.keys)
    for leaf in plan.of(Way.ENCODE):
        if leaf.referred is not None:
            count += len(leaf.referred.written)
            continue
        grid = zip(leaf.spec.shape, write_shape(leaf) or (), strict=True)
        count += 2 + math.prod(-(-size // max(step, 1)) for size, step in grid)  # and its document
    return count


def standing_parent(destination: Path) -> Path:
    """The innermost directory above the destination that exists."""
    parent = filesystem.absolute(destination).parent
    while not filesystem.exists(parent):
        parent = parent.parent
    return parent
