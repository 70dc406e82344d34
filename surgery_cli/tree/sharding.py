"""How arrays are spread over the devices of a mesh, and Orbax's own text for it."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.limits import DEVICES

_NAMED = "NamedSharding"
EXPLICIT = "AxisType.Explicit"
"""The type of mesh axes that are a part of the types of arrays."""

Axes: TypeAlias = tuple[str, ...]
"""The mesh axes over which one axis of an array is split, major first; none if it is not."""

Partition: TypeAlias = tuple[Axes, ...]
"""For the axes of an array, from the first: over which mesh axes each is split; those behind are not."""


class Mesh(msgspec.Struct, frozen=True):
    """Devices in a grid: its axes, and the ids of the devices in C order (0, 1, … if none are said)."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ids: tuple[int, ...] = ()
    axis_types: tuple[str, ...] = ()

    @classmethod
    def of(cls, axes: dict[str, int]) -> Mesh:
        """The mesh of these axes.

        Raises:
            PlanError: it has more devices than the limit `devices` allows.
        """
        mesh = cls(tuple(axes), tuple(axes.values()))
        DEVICES.check(mesh.size, f"the mesh '{mesh.text}'", PlanError)
        return mesh

    @property
    def size(self) -> int:
        """How many devices there are."""
        return math.prod(self.sizes)

    @property
    def devices(self) -> Sequence[int]:
        """The ids of the devices in C order."""
        return self.ids or range(self.size)

    def count(self, axes: Axes) -> int:
        """Over how many devices something is split that is split over these axes."""
        return math.prod(self.sizes[self.names.index(name)] for name in axes)

    @property
    def text(self) -> str:
        """The axes as they are typed: ``fsdp=16,expert=2``."""
        return ",".join(f"{name}={size}" for name, size in zip(self.names, self.sizes, strict=True))


class NamedSharding(msgspec.Struct, frozen=True):
    """An array spread over a mesh, as in ``jax.sharding.NamedSharding``."""

    mesh: Mesh
    partition: Partition = ()

    @classmethod
    def of_text(cls, text: str | None) -> NamedSharding | None:
        """The sharding that Orbax's JSON says; None if it is of another kind, or nothing that can be understood."""
        found = _read(text or "")
        return found if found is not None and found.mesh.size <= DEVICES.most else None

    @property
    def text(self) -> str:
        """Orbax's JSON for it."""
        return _text(self)

    def counts(self, ndim: int) -> tuple[int, ...]:
        """Into how many parts each of ``ndim`` axes is split."""
        every = (*self.partition, *[()] * ndim)
        return tuple(self.mesh.count(axes) for axes in every[:ndim])

    def divides(self, shape: Sequence[int]) -> bool:
        """True if an array of this shape can be split so: all parts of each axis are alike."""
        counts = self.counts(len(shape))
        is_short = len(self.partition) <= len(shape)
        return is_short and all(n % count == 0 for n, count in zip(shape, counts, strict=True))

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """What one device holds of an array that all parts share evenly."""
        return tuple(n // count for n, count in zip(shape, self.counts(len(shape)), strict=True))

    def parts(self, ndim: int) -> Iterator[tuple[int, ...]]:
        """For every device, in the order of the mesh, which part of each of ``ndim`` axes it holds."""
        every = (*self.partition, *[()] * ndim)[:ndim]
        places = [[self.mesh.names.index(name) for name in axes] for axes in every]
        for at in itertools.product(*map(range, self.mesh.sizes)):
            yield tuple(self._number(at, axes) for axes in places)

    def _number(self, at: tuple[int, ...], axes: Sequence[int]) -> int:
        number = 0
        for axis in axes:
            number = number * self.mesh.sizes[axis] + at[axis]
        return number


def usual_mesh(shardings: Iterable[NamedSharding]) -> Mesh | None:
    """The mesh over which most arrays are; None if there are none."""
    every = list(shardings)
    by_id = {id(one): one for one in every}  # arrays share a few, each of which names every device
    meshes = Counter[Mesh]()
    for key, count in Counter(map(id, every)).items():
        meshes[by_id[key].mesh] += count
    return meshes.most_common(1)[0][0] if meshes else None


@lru_cache(maxsize=512)  # leaves share a few, each of which names every device
def _read(text: str) -> NamedSharding | None:
    """The sharding that Orbax's JSON says, whatever the size of its mesh; see ``NamedSharding.of_text``."""
    try:
        fields: dict[str, Any] = decode_json(text)
        if fields["sharding_type"] != _NAMED:
            return None
        sizes, names = tuple(map(int, fields["shape"])), tuple(map(str, fields["axis_names"]))
        grid = (fields.get("device_mesh") or {}).get("mesh") or []
        mesh = Mesh(names, sizes, tuple(_ids(grid)), tuple(fields.get("axis_types") or ()))
        partition = trimmed(map(_names, fields["partition_spec"]))
        used = {name for axes in partition for name in axes}
        is_whole = len(names) == len(sizes) and len(mesh.ids) in (0, mesh.size)
        is_whole &= all(size > 0 for size in sizes)
        is_whole &= all(isinstance(one, str) for one in mesh.axis_types)
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return NamedSharding(_shared(mesh), partition) if is_whole and used <= set(names) else None


@lru_cache(maxsize=64)
def _shared(mesh: Mesh) -> Mesh:
    """The same mesh, of which all shardings over it have one."""
    return mesh


@lru_cache(maxsize=64)
def _text(sharding: NamedSharding) -> str:
    mesh = sharding.mesh
    ids = mesh.ids or tuple(range(mesh.size))
    fields = {
        "sharding_type": _NAMED,
        "shape": list(mesh.sizes),
        "axis_names": list(mesh.names),
        "axis_types": list(mesh.axis_types) or ["AxisType.Auto"] * len(mesh.names),
        "partition_spec": [_element(axes) for axes in sharding.partition],
        "device_mesh": {"mesh": _grid([{"id": one} for one in ids], mesh.sizes)},
    }
    return json.dumps(fields)


def trimmed(partition: Iterator[Axes] | Sequence[Axes]) -> Partition:
    """A partition without axes at its end that are not split: two that mean the same are equal."""
    found = list(partition)
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def of_rearranged(text: str, origins: Sequence[int | None], shape: Sequence[int]) -> str:
    """The sharding of an array of ``shape`` whose axes were those of another: ``origins`` of each, None if it is new.

    An axis keeps its mesh axes where their devices still divide it; else it is not split. Other texts stay as they are.

    >>> mesh = '{"sharding_type": "NamedSharding", "shape": [2], "axis_names": ["x"], "partition_spec": ["x", null]}'
    >>> json.loads(of_rearranged(mesh, (1, 0), (3, 4)))["partition_spec"]
    [None, 'x']
    >>> json.loads(of_rearranged(mesh, (0, 1), (5, 3)))["partition_spec"]
    [None, None]
    """
    try:
        fields: dict[str, Any] = decode_json(text)
        if fields["sharding_type"] != _NAMED:
            return text
        sizes = dict(zip(fields["axis_names"], fields["shape"], strict=True))
        old = fields["partition_spec"]
        parts = [old[n] if n is not None and n < len(old) else None for n in origins]
        counts = [math.prod(sizes[name] for name in _names(part)) for part in parts]
        fits = [n % count == 0 for n, count in zip(shape, counts, strict=True)]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return text
    fields["partition_spec"] = [p if ok else None for p, ok in zip(parts, fits, strict=True)]
    return json.dumps(fields)


def _names(part: Any) -> Axes:
    """The mesh axes over which one axis of an array is split."""
    return tuple(part) if isinstance(part, list) else () if part is None else (part,)


def _element(axes: Axes) -> Any:
    return None if not axes else axes[0] if len(axes) == 1 else list(axes)


def _ids(grid: Any) -> Iterator[int]:
    """The ids of devices in a mesh of lists, in C order."""
    if isinstance(grid, dict):
        yield int(grid["id"])
        return
    if not isinstance(grid, list):
        raise TypeError(grid)
    for part in grid:
        yield from _ids(part)


def _grid(flat: list[Any], sizes: Sequence[int]) -> Any:
    """What stands one after the other as nested lists of these sizes."""
    for size in reversed(sizes[1:]):
        flat = [flat[n : n + size] for n in range(0, len(flat), size)]
    return flat
