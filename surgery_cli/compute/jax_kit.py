"""The JAX kit: the same arithmetic on a device, or spread over a mesh of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from surgery_cli.compute import random
from surgery_cli.compute.devices import partition_for
from surgery_cli.compute.host import is_narrow, rounded, widest
from surgery_cli.draft.kernel import Place
from surgery_cli.tree.dtypes import Rounding
from surgery_cli.tree.specs import LeafSpec


class JaxKit:
    """Arithmetic on one device, or on a mesh over which every leaf is spread.

    64-bit dtypes and full matrix precision hold inside only: the process's own JAX settings stay as they are.
    XLA takes subnormal numbers (below 1.2e-38 in float32 and bfloat16) for 0, where the host computes with them.
    """

    xp = jnp
    tile_elements = None

    def __init__(self, *, device: Any = None, mesh: Any = None) -> None:
        self._device = device
        self._mesh = mesh

    def put(self, block: Any, spec: LeafSpec) -> Any:
        with self._settings():
            return jax.device_put(block, self._placement(block.shape, spec))

    def fetch(self, array: Any) -> Any:
        return np.asarray(array)

    def in_float32(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        with self._settings():
            return self.cast(function(self.widened(leaf)), leaf.dtype.name)

    def in_float64(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        with self._settings():
            return function(leaf.astype(widest(leaf.dtype.name)))

    def apply(self, function: Callable[..., Any], *arrays: Any) -> Any:
        with self._settings():
            return function(*arrays)

    def widened(self, leaf: Any) -> Any:
        with self._settings():
            return leaf.astype(np.float32) if is_narrow(leaf.dtype.name) else leaf

    def cast(self, leaf: Any, dtype: str) -> Any:
        with self._settings():
            return rounded(jnp, leaf, dtype)

    def rounds_alike(self, rounding: Rounding) -> bool:
        return False  # what is computed there is computed there

    def add_scaled(self, total: Any, block: Any, factor: float) -> Any:
        with self._settings():
            scaled = block.astype(widest(block.dtype.name)) * factor
            return scaled if total is None else total + scaled

    def quotient(self, total: Any, divisor: float, dtype: str) -> Any:
        with self._settings():
            return rounded(jnp, total / divisor, dtype)

    def draw(self, distribution: str, seed: int, at: Place, **bounds: float) -> Any:
        return random.draw(distribution, seed, at, **bounds)

    def orthogonal(self, seed: int, at: Place, column_axis: int, *, is_delta: bool) -> Any:
        return random.orthogonal(seed, at, column_axis, is_delta=is_delta)

    def _placement(self, shape: tuple[int, ...], spec: LeafSpec) -> Any:
        """The device, or the sharding of a block over the mesh."""
        if self._mesh is None:
            return self._device
        partition = partition_for(shape, spec, dict(self._mesh.shape))
        return NamedSharding(self._mesh, PartitionSpec(*partition))

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """64-bit dtypes as they are, matrix products in all their bits, and new arrays on this kit's device."""
        device = self._device if self._mesh is None else self._mesh.devices.flat[0]
        with (
            jax.enable_x64(True),
            jax.default_matmul_precision("highest"),
            jax.default_device(device),
        ):
            yield
