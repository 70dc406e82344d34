"""Whether a destination's filesystem can take what a run writes, asked before any work."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from surgery_cli.errors import DestinationError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.per_leaf import PerLeafStore
from surgery_cli.store.write.item_plan import ItemPlan, Way
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.words.quantities import byte_text

_LEAST_SPARE: Final = 1 << 20
_SPARE_PART: Final = 100
"""Beside what it writes, a run wants 1 MiB and a hundredth of that: metadata, directories, the record."""

_HOLD_NO_FILES: Final = ("/proc", "/sys")


def check_space(destination: Path, needed: int, plans: Mapping[str, ItemPlan]) -> None:
    """Refuse a destination where ``needed`` bytes, and some for metadata, or the new files of ``plans`` do not fit.

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
    needed += _LEAST_SPARE + needed // _SPARE_PART
    room = os.statvfs(parent)
    free = room.f_bavail * room.f_frsize
    # a total of zero is a filesystem that does not tell
    if room.f_blocks and needed > free:
        raise DestinationError(
            f"'{parent}' has not enough room for '{destination.name}'",
            why=f"about {byte_text(needed)} needed, {byte_text(free)} free",
            fix="free some, or write to another filesystem",
        )
    files = sum(map(files_of_leaves, plans.values()))
    if room.f_files and files > room.f_favail:
        raise DestinationError(
            f"'{parent}' has not enough room for the files of '{destination.name}'",
            why=f"at least {files:,} new files and directories, and its filesystem takes {room.f_favail:,}"
            " more (`df -i`)",
            fix="remove some files, or write to another filesystem",
        )


def files_of_leaves(plan: ItemPlan) -> int:
    """The least number of files and directories that the leaves of an item take, hard links not counted.

    Zero for layouts that do not keep every leaf in a directory of its own.
    """
    if not (isinstance(plan.item, PytreeItem) and isinstance(plan.item.store, PerLeafStore)):
        return 0
    count = len(plan.of(Way.KEEP, Way.MOVE, Way.GRAFT)) + 2 * len(plan.rearranged)
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
    parent = destination.absolute().parent
    while not filesystem.exists(parent):
        parent = parent.parent
    return parent
