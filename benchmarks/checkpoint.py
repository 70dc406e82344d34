"""Checkpoints for the benchmark, and a look at what became of them.

`checkpoint.py layers DIR --layers N --width W [--seed S] [--stacked]` · `checkpoint.py leaves DIR --count N` ·
`checkpoint.py vocabulary DIR --rows N --width W` ·
`checkpoint.py logical DIR --leaf ROWS --leaves N --chunks K --width W` ·
`checkpoint.py large DIR --chunks K --width W` · `checkpoint.py same A B LEAF…`
"""

import argparse
import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MOMENTS = ("params", "opt_state.0.mu", "opt_state.0.nu")


def save(directory: Path, state: Any) -> None:
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), state)


def build_layers(directory: Path, layers: int, width: int, seed: int, *, stacked: bool) -> None:
    """Save random params with Adam's mu and nu: three kernels a layer, in ranges that training gives them.

    ``stacked``: the layers are one leaf, as `nn.scan` keeps them.
    """
    import jax

    random = np.random.default_rng(seed)

    def normal(scale: float) -> dict:
        shape = (width * 15 // 16, width)
        kernels = [scale * random.standard_normal(shape, np.float32) for _ in range(layers)]
        if stacked:
            return {"layers": {"kernel": jax.numpy.asarray(np.stack(kernels))}}
        return {f"layer_{i}": {"kernel": jax.numpy.asarray(k)} for i, k in enumerate(kernels)}

    _save_trained(directory, normal)


def build_vocabulary(directory: Path, rows: int, width: int) -> None:
    """Save one embedding with Adam's mu and nu."""
    import jax

    random = np.random.default_rng(0)

    def normal(scale: float) -> dict:
        values = scale * random.standard_normal((rows, width), np.float32)
        return {"embedding": jax.numpy.asarray(values)}

    _save_trained(directory, normal)


def _save_trained(directory: Path, normal: Callable[[float], dict]) -> None:
    """Params and moments in ranges that training gives them; ``normal`` draws a tree."""
    import jax
    import optax

    params = normal(0.02)
    nu = jax.tree.map(lambda leaf: 1e-6 * (1 + abs(leaf)), normal(1.0))
    adam = optax.ScaleByAdamState(count=jax.numpy.int32(1000), mu=normal(1e-3), nu=nu)
    state = {"step": 1000, "params": params, "opt_state": (adam, optax.EmptyState())}
    save(directory, state)


def build_leaves(directory: Path, count: int) -> None:
    """A checkpoint of many tiny leaves, with Adam's mu and nu."""
    kernel = {"layer_00000": {"kernel": np.ones((4, 4), np.float32)}}
    save(directory, {"step": 1000, "params": kernel, "opt_state": _adam(kernel)})
    names = [f"layer_{i:05d}" for i in range(1, count // len(MOMENTS))]
    _repeat(directory, "layer_00000", names)


def build_logical(directory: Path, leaf: int, leaves: int, chunks: int, width: int) -> None:
    """A checkpoint far larger than its files: one layer of random kernels with ``leaf`` rows, and ``leaves`` of zeros.

    Each of the latter is stored in chunks of ``8 * width`` bytes times ``width``. A random embedding keeps the files
    so large that the layer is a small part of them, as in a checkpoint of real values: else it would be rewritten.
    """
    random = np.random.default_rng(0)
    params = {
        "embedding": random.standard_normal((4 * leaf, width), np.float32),
        "layer_0": {"kernel": random.standard_normal((leaf, width), np.float32)},
        "layer_1": {"kernel": np.zeros((2 * width, width), np.float32)},
    }
    save(directory, {"step": 1000, "params": params, "opt_state": _adam(params)})
    for prefix in MOMENTS:
        _lengthen(directory, f"{prefix}.layer_1.kernel", chunks)
    count = leaves // len(MOMENTS)
    _repeat(directory, "layer_1", [f"layer_{i}" for i in range(2, 1 + count)])


def build_large(directory: Path, chunks: int, width: int) -> None:
    """A checkpoint of one random leaf, in so many chunks of ``8 * width`` bytes times ``width``."""
    import jax

    values = np.random.default_rng(0).standard_normal((2 * width, width), np.float32)
    kernel = jax.numpy.asarray(values)
    save(directory, {"step": 1000, "params": {"layer_0": {"kernel": kernel}}})
    _lengthen(directory, "params.layer_0.kernel", chunks)


def _adam(params: Any) -> Any:
    import optax

    return (optax.ScaleByAdamState(np.int32(1000), mu=params, nu=params), optax.EmptyState())


def _database(directory: Path) -> Any:
    import tensorstore as ts

    database = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{directory.resolve()}/"}}
    return ts.KvStore.open(database).result()


def _lengthen(directory: Path, name: str, chunks: int) -> None:
    """Give an array of one chunk so many, all of them alike. Saving it whole with Orbax takes its size in memory."""
    store = _database(directory)
    document = json.loads(store[f"{name}/.zarray"])
    document["shape"][0] *= chunks
    value = store[f"{name}/0.0"]
    store[f"{name}/.zarray"] = json.dumps(document)
    for number in range(1, chunks):
        store[f"{name}/{number}.0"] = value


def _repeat(directory: Path, layer: str, names: list[str]) -> None:
    """Repeat a layer's entries under other names. Saving leaves one by one with Orbax takes minutes."""
    import tensorstore as ts

    store = _database(directory)
    metadata = json.loads((directory / "_METADATA").read_text())
    tree = metadata["tree_metadata"]
    for prefix in MOMENTS:
        first = f"{prefix}.{layer}.kernel/"
        keys = [key.decode() for key in store.list().result() if key.startswith(first.encode())]
        with ts.Transaction(atomic=True) as transaction:
            inside = store.with_transaction(transaction)
            for key in keys:
                value = store[key]
                for name in names:
                    inside[f"{prefix}.{name}.kernel/{key.removeprefix(first)}"] = value
        old = (*prefix.split("."), layer, "kernel")
        entry = next(value for key, value in tree.items() if ast.literal_eval(key) == old)
        for name in names:
            records = [dict(record) for record in entry["key_metadata"]]
            records[-2]["key"] = name
            tree[str((*old[:-2], name, "kernel"))] = {**entry, "key_metadata": records}
    (directory / "_METADATA").write_text(json.dumps(metadata))


def leaf(directory: Path, name: str) -> np.ndarray:
    """One stored array, by its dotted name, read without Orbax and without surgery."""
    import tensorstore as ts

    base = {"driver": "file", "path": f"{directory.resolve()}/"}
    kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    return ts.open({"driver": "zarr", "kvstore": kvstore}, open=True).result().read().result()


def check_same(a: Path, b: Path, leaves: list[str]) -> None:
    for name in leaves:
        one, other = leaf(a, name), leaf(b, name)
        is_close = np.allclose(one.astype(np.float32), other.astype(np.float32), rtol=1e-6, atol=0)
        if one.dtype != other.dtype or not is_close:
            sys.exit(f'"{name}" differs between {a} and {b}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    layers = commands.add_parser("layers")
    layers.add_argument("directory", type=Path)
    layers.add_argument("--layers", type=int, required=True)
    layers.add_argument("--width", type=int, required=True)
    layers.add_argument("--seed", type=int, default=0)
    layers.add_argument("--stacked", action="store_true")
    vocabulary = commands.add_parser("vocabulary")
    vocabulary.add_argument("directory", type=Path)
    vocabulary.add_argument("--rows", type=int, required=True)
    vocabulary.add_argument("--width", type=int, required=True)
    leaves = commands.add_parser("leaves")
    leaves.add_argument("directory", type=Path)
    leaves.add_argument("--count", type=int, required=True)
    logical = commands.add_parser("logical")
    logical.add_argument("directory", type=Path)
    logical.add_argument("--leaf", type=int, required=True)
    logical.add_argument("--leaves", type=int, required=True)
    logical.add_argument("--chunks", type=int, required=True)
    logical.add_argument("--width", type=int, required=True)
    large = commands.add_parser("large")
    large.add_argument("directory", type=Path)
    large.add_argument("--chunks", type=int, required=True)
    large.add_argument("--width", type=int, required=True)
    same = commands.add_parser("same")
    same.add_argument("a", type=Path)
    same.add_argument("b", type=Path)
    same.add_argument("leaves", nargs="+")
    arguments = parser.parse_args()

    if arguments.command == "layers":
        numbers = (arguments.layers, arguments.width, arguments.seed)
        build_layers(arguments.directory, *numbers, stacked=arguments.stacked)
    elif arguments.command == "vocabulary":
        build_vocabulary(arguments.directory, arguments.rows, arguments.width)
    elif arguments.command == "leaves":
        build_leaves(arguments.directory, arguments.count)
    elif arguments.command == "logical":
        sizes = (arguments.leaf, arguments.leaves, arguments.chunks, arguments.width)
        build_logical(arguments.directory, *sizes)
    elif arguments.command == "large":
        build_large(arguments.directory, arguments.chunks, arguments.width)
    else:
        check_same(arguments.a, arguments.b, arguments.leaves)


if __name__ == "__main__":
    main()
