"""Run by a test in a process of its own, where JAX has eight CPU devices: every case, on a device and on a mesh.

Writes `results.npz` (case|placement -> values) and `facts.json` into the folder that it is given.
"""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from surgery_cli.compute.kits import open_kit
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.tree.specs import LeafKind, LeafSpec
from tests.operations.value_edits import ArrayScene, ArraySource, edited

SCALE = np.linspace(0.5, 2.0, 24)
EDITS = {
    "number": Rescale(by=0.3),
    "huge": Rescale(by=1e39),
    "array": Rescale(by="scale.npy"),
    **{norm: Normalize(norm=norm) for norm in ("l1", "l2", "max", "rms", "spectral")},
    "columns": Normalize(axis=0, to=2.0),
    "constant": Replace(with_=0.1),
    "initializer": Reinit(init="lecun_normal", seed=1),
    "orthogonal": Reinit(init="orthogonal"),
    "bfloat16": Cast(to="bfloat16"),
    "float16": Cast(to="float16"),
    "float8": Cast(to="float8_e4m3fn"),
    "float64": Cast(to="float64"),
}
DTYPES = (np.float32, np.float64, ml_dtypes.bfloat16)
CASES = [(name, np.dtype(dtype).name) for name in EDITS for dtype in DTYPES]
PLACEMENTS = {
    "cpu:5": ("cpu:5", None),
    "mesh": ("cpu", "data=4,model=2"),
}


def leaf_of(dtype: str) -> np.ndarray:
    values = np.random.default_rng(3).normal(size=(16, 24)) * (1 + 1e-9)
    return values.astype(getattr(ml_dtypes, dtype, dtype))


def result_of(name: str, dtype: str, kit: object, *, in_blocks: bool = False) -> np.ndarray:
    scene = ArrayScene(scale__npy=ArraySource({"": SCALE}))
    return edited(
        EDITS[name], leaf_of(dtype), kit=kit, scene=scene, block=(8, 24) if in_blocks else None
    )


def main(folder: Path) -> None:
    import jax

    results = {}
    for placement, (device, mesh) in PLACEMENTS.items():
        kit = open_kit(device, mesh)
        for name, dtype in CASES:
            results[f"{name}|{dtype}|{placement}"] = result_of(name, dtype, kit)
    mesh = open_kit("cpu", "data=4,model=2")
    stored = json.dumps(
        {"sharding_type": "NamedSharding", "partition_spec": ["model", ["data"], None]}
    )
    leaf = np.zeros((2, 12, 3), np.float64)
    spec = LeafSpec(kind=LeafKind.ARRAY, shape=leaf.shape, dtype="float64", sharding=stored)
    one = open_kit("cpu:5").put(leaf, spec)
    spread = mesh.put(leaf, spec)
    facts = {
        "one": [device.id for device in one.devices()],
        "shard": spread.sharding.shard_shape(leaf.shape),
        "partition": str(spread.sharding.spec),
        "dtype": spread.dtype.name,
        "still_32_bits": str(jax.numpy.zeros(1, float).dtype),
    }
    bits = {name: values.view(f"u{values.dtype.itemsize}") for name, values in results.items()}
    np.savez(folder / "results.npz", **bits)
    names = {name: values.dtype.name for name, values in results.items()}
    (folder / "facts.json").write_text(json.dumps({**facts, "dtypes": names}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
