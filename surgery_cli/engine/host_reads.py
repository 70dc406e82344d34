"""What every host of a mesh would read to restore: a part of a stored chunk costs all of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from surgery_cli.store import filesystem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.sharding import Mesh, NamedSharding
from surgery_cli.tree.specs import LeafSpec

_Sizes: TypeAlias = np.ndarray[Any, Any]
"""Bytes of stored chunks: [the grid of chunks]."""


class Chunks(NamedTuple):
    """The chunks of an array: their shape, how many bytes of each are read for it, and how many stored values they are.

    ``is_exact``: these bytes are known, not told from others.
    """

    shape: tuple[int, ...]
    sizes: _Sizes
    number: int
    is_exact: bool = True


class Spread(NamedTuple):
    """A leaf as it is read: its shape, its chunks, and how it is spread (None: every host reads all of it)."""

    name: str
    shape: tuple[int, ...]
    chunks: Chunks
    sharding: NamedSharding | None


class Reads(NamedTuple):
    """What hosts read of a leaf, in bytes of stored chunks.

    ``by_host``: of each. ``stored``: of all chunks that any host reads, once. ``used``: what of ``by_host`` is of
    elements that the host needs, in all.
    """

    spread: Spread
    by_host: _Sizes
    stored: int
    used: float

    @property
    def read(self) -> int:
        return int(self.by_host.sum())

    @property
    def unused(self) -> int:
        """Bytes that are read for nothing: of elements in the same chunks that the host does not need."""
        return max(round(self.read - self.used), 0)

    @property
    def again(self) -> int:
        """Bytes that are read by more than one host, beyond the first."""
        return max(self.read - self.stored, 0)


def bytes_by_host(reads: Iterable[Reads], hosts: int) -> list[int]:
    """What each host reads of all leaves."""
    total = np.zeros(hosts, np.int64)
    for one in reads:
        total += one.by_host
    return [int(count) for count in total]


def stored_chunks(store: ArrayStore, array: StoredArray) -> Chunks:
    """The chunks of a stored array, their sizes as the database's tree or the directory says them.

    What the tree holds itself has none: it comes with the tree's nodes, which every host reads.
    Of the chunks inside a shard of zarr 3 only the shard's index has the sizes: they are taken for equal.
    """
    document = array.document
    values = dict(zip(array.keys, array.values, strict=False))
    files = frozenset(array.keys) if not values else frozenset()
    sizes = np.zeros(document.grid, np.int64)
    for index in itertools.product(*map(range, document.grid)):
        key = document.key_of(index)
        if key in values:
            value = values[key]
            sizes[index] = 0 if isinstance(value, bytes) else len(value)
        elif key in files:
            sizes[index] = filesystem.size(store.directory / (below(array.name) + key))
    inner = document.chunk_shape
    if inner == document.write_shape or not all(inner):
        return Chunks(document.write_shape, sizes, sizes.size)
    steps = zip(document.write_shape, inner, strict=True)
    per = tuple(-(-whole // part) for whole, part in steps)
    grid = tuple(-(-n // part) for n, part in zip(document.shape, inner, strict=True))
    spread = sizes / math.prod(per)
    for axis, count in enumerate(per):
        spread = spread.repeat(count, axis)
    return Chunks(inner, spread[tuple(map(slice, grid))], sizes.size, is_exact=False)


def expected_chunks(spec: LeafSpec, ratio: float) -> Chunks:
    """The chunks that a leaf will have, compressed to ``ratio`` of their bytes in memory."""
    shape = spec.write_shape or spec.shape
    grid = tuple(-(-n // max(part, 1)) for n, part in zip(spec.shape, shape, strict=True))
    width = item_bytes(spec.dtype)
    sizes = np.full(grid, round(math.prod(shape) * width * ratio), np.int64)
    return Chunks(shape, sizes, sizes.size, is_exact=False)


def host_reads(leaves: Iterable[Spread], mesh: Mesh, hosts: int) -> Iterator[Reads]:
    """What each of ``hosts`` reads of each leaf; the devices of ``mesh`` belong to the hosts in its order.

    A host reads a chunk once, whichever of its devices needs a part of it. A leaf on another mesh is read by the hosts
    that have its devices; where these are not known, in that mesh's own order, or else whole by each.
    """
    each = mesh.size // hosts
    hosts_of = {device: n // each for n, device in enumerate(mesh.devices)}
    for leaf in leaves:
        sizes = leaf.chunks.sizes
        total = float(sizes.sum())
        sharding = leaf.sharding
        owners = () if sharding is None else _owners(sharding.mesh, hosts_of, hosts)
        if sharding is None or not owners or not sizes.size:
            yield Reads(leaf, np.full(hosts, round(total)), round(total), total * hosts)
            continue
        by_host, used = np.zeros(hosts, np.int64), 0.0
        is_read = np.zeros(sizes.shape, bool)
        for box, needed, of in _shares(sharding, owners, leaf.shape, leaf.chunks.shape):
            inside, touched = sizes[box], needed > 0
            by_host[list(of)] = round(float(inside[touched].sum()))
            used += float((inside * needed).sum()) * len(of)
            is_read[box] |= touched
        yield Reads(leaf, by_host, round(float(sizes[is_read].sum())), used)


def _owners(mesh: Mesh, hosts_of: Mapping[int, int], hosts: int) -> tuple[int, ...]:
    """The host of every device of a mesh, in its order; none where that cannot be told."""
    known = tuple(hosts_of.get(device, -1) for device in mesh.devices)
    if -1 not in known:
        return known
    return () if mesh.size % hosts else tuple(n * hosts // mesh.size for n in range(mesh.size))


_Share: TypeAlias = tuple[tuple[slice, ...], _Sizes, tuple[int, ...]]
"""In which box of the grid of chunks some hosts read, which part of each chunk there they need, and which they are."""


@lru_cache(maxsize=256)
def _shares(
    sharding: NamedSharding, owners: tuple[int, ...], shape: tuple[int, ...], chunk: tuple[int, ...]
) -> list[_Share]:
    """What hosts, the ``owners`` of devices, touch of a grid of chunks; hosts that need the same are one."""
    parts: dict[int, list[tuple[int, ...]]] = {}
    for host, part in zip(owners, sharding.parts(len(shape)), strict=True):
        parts.setdefault(host, []).append(part)
    wanted: dict[frozenset[tuple[int, ...]], list[int]] = {}
    for host, own in parts.items():
        wanted.setdefault(frozenset(own), []).append(host)
    shard = sharding.shard_shape(shape)
    covered = [
        partial(_covered, length=length, size=size, step=max(step, 1))
        for length, size, step in zip(shard, shape, chunk, strict=True)
    ]
    return [(*_together(own, covered), tuple(of)) for own, of in wanted.items()]


def _together(
    parts: Collection[tuple[int, ...]], covered: Sequence[Callable[[int], tuple[int, _Sizes]]]
) -> tuple[tuple[slice, ...], _Sizes]:
    """The box of chunks around some parts, and which part of each chunk in it lies in one of them."""
    if not covered:
        return (), np.ones((), np.float64)
    found = [[of(n) for of, n in zip(covered, part, strict=True)] for part in parts]
    starts = [min(axis[0] for axis in axes) for axes in zip(*found, strict=True)]
    stops = [max(axis[0] + axis[1].size for axis in axes) for axes in zip(*found, strict=True)]
    needed = np.zeros([stop - start for start, stop in zip(starts, stops, strict=True)])
    for axes in found:
        place = tuple(
            slice(first - start, first - start + shares.size)
            for (first, shares), start in zip(axes, starts, strict=True)
        )
        needed[place] += reduce(np.multiply.outer, [shares for _, shares in axes])
    return tuple(map(slice, starts, stops)), needed


def _covered(number: int, *, length: int, size: int, step: int) -> tuple[int, _Sizes]:
    """Along one axis, the first chunk that a part touches, and which share of it and of those that follow is in it."""
    first, last = number * length // step, -(-(number + 1) * length // step)
    starts = np.arange(first, last) * step
    stops = np.minimum(starts + step, size)
    inside = np.minimum(stops, (number + 1) * length) - np.maximum(starts, number * length)
    return first, inside / (stops - starts)
