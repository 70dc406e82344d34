"""What `derive` takes at once to hold the values of two trees against each other, told before any is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial

from surgery_cli.engine.bounded_reads import PairReading, Reading
from surgery_cli.matching.large_leaves import read_alone, read_beside, turned
from surgery_cli.script.user_code import Say
from surgery_cli.surgery.look_memory import Look, planned_looks
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

_Leaves = Mapping[LeafPath, LeafSpec]


def say_memory(old: _Leaves, new: _Leaves, memory_bytes: int, say: Say) -> None:
    """Tell of leaves that take more than they may, or longer for that.

    Raises:
        CheckpointError: this process has no memory for the least that can be read of some.
    """
    alone: dict[LeafPath, Look[Reading]] = {
        path: Look(str(path), (spec,), partial(read_alone, spec))
        for leaves in (old, new)
        for path, spec in leaves.items()
    }
    beside = dict(_pairs(old, new, bytes_to_use(memory_bytes)))
    alone = {path: look for path, look in alone.items() if path not in beside}
    planned_looks(alone, memory_bytes, say)
    planned_looks(beside, memory_bytes, say)


def _pairs(old: _Leaves, new: _Leaves, limit: int) -> Iterator[tuple[LeafPath, Look[PairReading]]]:
    """Each large leaf of the new tree beside the one of the old that takes most: in parts, if axes keep their sizes."""
    by_axes: dict[tuple[int, ...], dict[LeafSpec, None]] = {}
    for spec in old.values():
        by_axes.setdefault(tuple(sorted(spec.shape)), {})[spec] = None
    most: dict[LeafSpec, LeafSpec | None] = {}
    for path, spec in new.items():
        if spec not in most:
            alike = by_axes.get(tuple(sorted(spec.shape)), ()) if spec.has_array else ()
            large = [turned_to(spec, one) for one in alike if 4 * (one.bytes + spec.bytes) > limit]
            most[spec] = max(
                large, key=lambda one: read_beside(spec, one, limit).held_bytes, default=None
            )
        if (other := most[spec]) is not None:
            yield path, Look(str(path), (spec, other), partial(read_beside, spec, other))


def turned_to(spec: LeafSpec, other: LeafSpec) -> LeafSpec:
    """The other leaf with its axes in the first order in which their sizes are those of this one."""
    orders = itertools.permutations(range(len(other.shape)))
    axes = next(one for one in orders if tuple(other.shape[n] for n in one) == spec.shape)
    return turned(other, axes)
