"""Devices and meshes by the names that people type."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from surgery_cli.errors import SurgeryError
from surgery_cli.tree.specs import LeafSpec

PLATFORMS = ("cpu", "gpu", "tpu")

MeshAxes = dict[str, int]
"""The sizes of a mesh's axes by their names, in order."""

Partition = tuple[str | tuple[str, ...] | None, ...]
"""For every array axis the mesh axes over which it is spread, as in ``jax.sharding.PartitionSpec``."""


def parse_device(text: str) -> tuple[str, int | None]:
    """``gpu:1`` as its platform and index; ``host`` has none.

    Raises:
        SurgeryError: there is no such kind of device.
    """
    platform, colon, index = text.partition(":")
    if platform == "host" and not colon:
        return platform, None
    if platform not in PLATFORMS or (colon and not index.isdecimal()):
        raise SurgeryError(
            f"'{text}' is not a device",
            why="a device is host, cpu, gpu or tpu, the last three with an index if wanted: gpu:1",
            fix="leave out `--device` to compute on the host",
        )
    return platform, int(index) if colon else None


@contextmanager
def default_device(text: str) -> Iterator[None]:
    """While the block runs, JAX computes on that device; the host's is the CPU. Raises as ``parse_device``."""
    import jax

    platform, index = parse_device("cpu" if text == "host" else text)
    with jax.default_device(choose_device(platform, index)):
        yield


def find_devices(platform: str) -> list[Any]:
    """The JAX devices of a platform on this machine.

    Raises:
        SurgeryError: there are none; those that are there are listed.
    """
    import jax

    try:
        return list(jax.local_devices(backend=platform))
    except RuntimeError:
        raise SurgeryError(
            f"there is no {platform} here",
            why=f"JAX finds {_present()}",
            fix="choose one of these with `--device`, or `--device host`, which needs none",
        ) from None


def choose_device(platform: str, index: int | None) -> Any:
    """One device of a platform, the first if no index is given.

    Raises:
        SurgeryError: it is not there; those that are there are listed.
    """
    devices = find_devices(platform)
    if (index or 0) >= len(devices):
        raise SurgeryError(
            f"there is no {platform}:{index} here",
            why=f"JAX finds {_present()}",
            fix="choose one of these with `--device`",
        )
    return devices[index or 0]


def choose_mesh(platform: str, axes: MeshAxes) -> Any:
    """A ``jax.sharding.Mesh`` over the first devices of a platform.

    Raises:
        SurgeryError: there are fewer devices than the mesh needs.
    """
    import numpy as np
    from jax.sharding import Mesh

    devices = find_devices(platform)
    count = math.prod(axes.values())
    if count > len(devices):
        sizes = ",".join(f"{name}={size}" for name, size in axes.items())
        raise SurgeryError(
            f"the mesh '{sizes}' needs {count} devices",
            why=f"JAX finds {_present()}",
            fix=f"give a mesh of at most {len(devices)}, or leave out `--mesh`",
        )
    return Mesh(np.array(devices[:count]).reshape(tuple(axes.values())), tuple(axes))


def _present() -> str:
    """The devices that are there, as text."""
    import jax

    found = []
    for platform in PLATFORMS:
        try:
            devices = jax.local_devices(backend=platform)
        except RuntimeError:
            continue
        found += [f"{platform}:{index}" for index in range(len(devices))]
    return ", ".join(found) or "no device"


def partition_for(shape: tuple[int, ...], spec: LeafSpec, axes: MeshAxes) -> Partition:
    """How a block of a leaf is spread over a mesh.

    As the stored PartitionSpec says, where its axis names are the mesh's and divide the block; else along the
    largest axis that all devices divide, else along the largest that one mesh axis divides, else not at all.
    """
    stored = _stored_partition(spec.sharding)
    taken = tuple(
        names if _divides(names, size, axes) else None
        for names, size in zip((*stored, *[()] * len(shape)), shape, strict=False)
    )
    if any(taken):
        return tuple(names or None for names in taken)
    everything = tuple(axes)
    by_size = sorted(axes, key=lambda name: axes[name], reverse=True)
    for names in (everything, *((name,) for name in by_size)):
        fitting = [n for n, size in enumerate(shape) if size and _divides(names, size, axes)]
        if fitting:
            best = max(fitting, key=lambda n: shape[n])
            return tuple(names if n == best else None for n in range(len(shape)))
    return ()


def _divides(names: tuple[str, ...], size: int, axes: MeshAxes) -> bool:
    """True if these are axes of the mesh whose devices share ``size`` evenly."""
    return all(n in axes for n in names) and size % math.prod(axes[n] for n in names) == 0


def _stored_partition(sharding: str | None) -> tuple[tuple[str, ...], ...]:
    """The PartitionSpec in Orbax's JSON of a NamedSharding: mesh axis names for every array axis."""
    partition = json.loads(sharding).get("partition_spec") if sharding else None
    return tuple(
        (entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in partition or ()
    )
