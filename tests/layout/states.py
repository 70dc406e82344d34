"""A state with a layer, its twins and what is no array, saved on a mesh of eight devices or on one."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

LAYOUTS = [(ocdbt, zarr3) for ocdbt in (True, False) for zarr3 in (False, True)]
NAMES = [f"{'ocdbt' if o else 'leaves'}-zarr{3 if z else 2}" for o, z in LAYOUTS]


def state() -> dict[str, Any]:
    drawn = np.random.default_rng(0)
    params = {
        "dense": {
            "kernel": jax.numpy.asarray(drawn.normal(size=(64, 96)), "float32"),
            "bias": jax.numpy.asarray(drawn.normal(size=96), "float32"),
        },
        "embed": jax.numpy.asarray(drawn.normal(size=(40, 16)), "bfloat16"),
    }
    tx = optax.adamw(1e-3)
    slots = jax.tree.map(lambda a: a + drawn.normal(size=a.shape).astype(a.dtype), tx.init(params))
    return {
        "params": params,
        "opt_state": slots,
        "step": jax.numpy.asarray(3),
        "rng": jax.random.key(3),
    }


def over(mesh: jax.sharding.Mesh, tree: Any, spec: Any) -> Any:
    """The tree with matrices spread as ``spec`` says, all else on every device."""
    return jax.tree.map(
        lambda a: jax.device_put(a, NamedSharding(mesh, spec if a.ndim == 2 else P())), tree
    )


def save(path: Path, tree: Any, *, ocdbt: bool = True, zarr3: bool = False) -> Path:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)) as saver:
        saver.save(path, args=ocp.args.PyTreeSave(tree))
    return path


def restored(path: Path, target: Any = None) -> Any:
    """What Orbax restores: to the shardings on disk, or to those of a target."""
    with ocp.PyTreeCheckpointer() as reader:
        if target is None:
            return reader.restore(path)
        arguments = ocp.checkpoint_utils.construct_restore_args(target)
        return reader.restore(
            path, args=ocp.args.PyTreeRestore(item=target, restore_args=arguments)
        )


def values(tree: Any) -> list[bytes]:
    """The bytes of all leaves, in order."""
    plain = jax.tree.map(
        lambda a: (
            jax.random.key_data(a)
            if isinstance(a, jax.Array) and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key)
            else a
        ),
        tree,
    )
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(plain)]
