"""One of two processes with two CPU devices each, which save and restore a sharded state together.

`two_processes.py NUMBER PORT save ROOT` · `two_processes.py NUMBER PORT restore ROOT FACTOR`: the second restores with
the original abstract target and holds every shard of this process against ``FACTOR`` times the kernel.
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

KERNEL = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
STEP = 7


def state(factor: float = 1.0) -> Any:
    """Params sharded over both processes, one leaf on all devices, and Adam's moments."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))

    def put(values: Any, *axes: str | None) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.make_array_from_callback(np.shape(values), sharding, lambda at: values[at])

    def tree(power: int) -> Any:
        scale = np.float32(factor**power)
        return {
            "dense": {
                "kernel": put(KERNEL * scale, "data", "model"),
                "bias": put(KERNEL[0], "model"),
            },
            "everywhere": put(KERNEL[:4]),
        }

    adam = optax.ScaleByAdamState(put(np.array(STEP, np.int32)), tree(-1), tree(-2))
    return {"params": tree(1), "opt_state": (adam, optax.EmptyState())}


def main() -> None:
    number, port, task, root = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
    assert jax.device_count() == 4
    with ocp.CheckpointManager(root) as manager:
        if task == "save":
            manager.save(STEP, args=ocp.args.StandardSave(state()))
            return
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, state())
        restored = manager.restore(STEP, args=ocp.args.StandardRestore(target))
    expected = state(float(sys.argv[5]))
    assert jax.tree.structure(restored) == jax.tree.structure(expected)
    for found, meant in zip(jax.tree.leaves(restored), jax.tree.leaves(expected), strict=True):
        assert found.sharding == meant.sharding
        for a, b in zip(found.addressable_shards, meant.addressable_shards, strict=True):
            np.testing.assert_array_equal(a.data, b.data)


if __name__ == "__main__":
    main()
