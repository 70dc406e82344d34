"""The recipe without surgery: restore the whole state with Orbax, edit it, save the whole state.

`recipe.py TASK SRC DST [--donor OTHER]`; `metadata`, `restore` and `look` write nothing.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable
from typing import Any

if "reshard" in sys.argv[1:2]:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from rows import GROWN

State = dict[str, Any]


def moments(state: State) -> State:
    return state["opt_state"][0]


def rescale_leaf(state: State, _: State) -> None:
    layer = state["params"]["layer_0"]
    layer["kernel"] = layer["kernel"] * 0.5


def rescale_leaf_and_moments(state: State, donor: State) -> None:
    rescale_leaf(state, donor)
    for name, factor in (("mu", 1 / 0.5), ("nu", 1 / 0.5**2)):
        layer = moments(state)[name]["layer_0"]
        layer["kernel"] = layer["kernel"] * factor


def rescale_kernels(state: State, _: State) -> None:
    state["params"] = jax.tree.map(lambda kernel: kernel * 0.5, state["params"])


def rename_layer(state: State, _: State) -> None:
    for tree in (state["params"], moments(state)["mu"], moments(state)["nu"]):
        tree["first"] = tree.pop("layer_0")


def graft_layer(state: State, donor: State) -> None:
    state["params"]["layer_0"] = donor["params"]["layer_0"]


def cast(state: State, _: State) -> None:
    for tree, name in ((state, "params"), (moments(state), "mu"), (moments(state), "nu")):
        tree[name] = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree[name])


def average(state: State, donor: State) -> None:
    pairs = [(state, donor, "params")]
    pairs += [(moments(state), moments(donor), name) for name in ("mu", "nu")]
    for mine, other, name in pairs:
        mine[name] = jax.tree.map(lambda a, b: (a + b) / 2, mine[name], other[name])


def stack(state: State, _: State) -> None:
    for tree in _trees(state):
        kernels = [tree.pop(f"layer_{n}")["kernel"] for n in range(len(tree))]
        tree["layers"] = {"kernel": np.stack(kernels)}


def unstack(state: State, _: State) -> None:
    for tree in _trees(state):
        kernels = np.asarray(tree.pop("layers")["kernel"])
        tree |= {f"layer_{n}": {"kernel": kernel} for n, kernel in enumerate(kernels)}


def transpose(state: State, _: State) -> None:
    for tree in _trees(state):
        for layer in tree.values():
            layer["kernel"] = np.ascontiguousarray(np.asarray(layer["kernel"]).T)


def grow_vocabulary(state: State, _: State) -> None:
    for tree, by_mean in zip(_trees(state), (True, False, True), strict=True):
        rows = np.asarray(tree["embedding"])
        new = np.zeros((GROWN - len(rows), rows.shape[1]), rows.dtype)
        if by_mean:
            new[:] = rows.mean(0, dtype=np.float64)
        tree["embedding"] = np.concatenate([rows, new])


def look(state: State) -> None:
    """What a notebook would ask of every leaf, and a digest."""
    for leaf in map(np.asarray, jax.tree.leaves(state)):
        print(leaf.mean(dtype=np.float64), leaf.std(dtype=np.float64), leaf.min(), leaf.max())
        print(
            np.linalg.norm(leaf.reshape(-1)), np.count_nonzero(leaf == 0), np.histogram(leaf, 16)[0]
        )
        print(hashlib.sha256(np.ascontiguousarray(leaf).view(np.uint8).data).hexdigest())


def _trees(state: State) -> list[State]:
    return [state["params"], moments(state)["mu"], moments(state)["nu"]]


TASKS: dict[str, Callable[[State, State], None]] = {
    "leaf": rescale_leaf,
    "moments": rescale_leaf_and_moments,
    "kernels": rescale_kernels,
    "rename": rename_layer,
    "graft": graft_layer,
    "bfloat16": cast,
    "average": average,
    "stack": stack,
    "unstack": unstack,
    "transpose": transpose,
    "vocabulary": grow_vocabulary,
}


def on_sixteen(checkpointer: ocp.StandardCheckpointer, source: epath.Path) -> State:
    """The state as sixteen devices hold it that split the columns of kernels."""
    mesh = jax.make_mesh((16,), ("fsdp",))

    def spread(leaf: Any) -> Any:
        if leaf.shape is None or isinstance(leaf, ocp.metadata.value.ScalarMetadata):
            return 0
        spec = jax.sharding.PartitionSpec(*([None, "fsdp"] if len(leaf.shape) == 2 else []))
        sharding = jax.sharding.NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    tree = checkpointer.metadata(source).item_metadata.tree
    target = jax.tree.map(spread, tree, is_leaf=lambda node: hasattr(node, "dtype"))
    return checkpointer.restore(source, target)


def place(text: str) -> epath.Path:
    """A path on this disk, or in a bucket."""
    return epath.Path(text) if "://" in text else epath.Path(text).resolve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=[*TASKS, "metadata", "restore", "look", "reshard"])
    parser.add_argument("source", type=place)
    parser.add_argument("destination", type=place, nargs="?")
    parser.add_argument("--donor", type=place)
    arguments = parser.parse_args()

    with ocp.StandardCheckpointer() as checkpointer:
        source = arguments.source
        if arguments.task == "metadata":
            checkpointer.metadata(source)
            return
        if arguments.task == "reshard":
            checkpointer.save(arguments.destination, on_sixteen(checkpointer, source))
            return
        state = checkpointer.restore(source)
        if arguments.task == "restore":
            return
        if arguments.task == "look":
            look(state)
            return
        donor = checkpointer.restore(arguments.donor) if arguments.donor else {}
        TASKS[arguments.task](state, donor)
        checkpointer.save(arguments.destination, state)


if __name__ == "__main__":
    main()
