"""Checkpoints for the benchmark: `checkpoint.py build DIR --layers N`, `checkpoint.py same A B LEAF…`."""

import argparse
import sys
from pathlib import Path

import numpy as np

SHAPE = (1920, 2048)  # float32: 15.7 MB a leaf


def build(directory: Path, layers: int) -> None:
    """Save random params with Adam's mu and nu: three leaves a layer, in ranges that training gives them."""
    import jax
    import optax
    import orbax.checkpoint as ocp

    random = np.random.default_rng(0)

    def normal(scale: float) -> dict:
        return {
            f"layer_{i}": {
                "kernel": jax.numpy.asarray(scale * random.standard_normal(SHAPE, np.float32))
            }
            for i in range(layers)
        }

    params = normal(0.02)
    nu = jax.tree.map(lambda leaf: 1e-6 * (1 + abs(leaf)), normal(1.0))
    adam = optax.ScaleByAdamState(count=jax.numpy.int32(1000), mu=normal(1e-3), nu=nu)
    state = {"step": 1000, "params": params, "opt_state": (adam, optax.EmptyState())}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), state)


def leaf(directory: Path, name: str) -> np.ndarray:
    """One stored array, by its dotted name, read without Orbax and without surgery."""
    import tensorstore as ts

    base = {"driver": "file", "path": f"{directory.resolve()}/"}
    kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    return ts.open({"driver": "zarr", "kvstore": kvstore}, open=True).result().read().result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("directory", type=Path)
    building.add_argument("--layers", type=int, required=True)
    comparing = commands.add_parser("same")
    comparing.add_argument("a", type=Path)
    comparing.add_argument("b", type=Path)
    comparing.add_argument("leaves", nargs="+")
    arguments = parser.parse_args()

    if arguments.command == "build":
        build(arguments.directory, arguments.layers)
        return
    for name in arguments.leaves:
        if not np.allclose(leaf(arguments.a, name), leaf(arguments.b, name), rtol=1e-6, atol=0):
            sys.exit(f'"{name}" differs between {arguments.a} and {arguments.b}')


if __name__ == "__main__":
    main()
