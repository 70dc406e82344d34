"""T5X checkpoints as T5X writes them, built from their documented structure: t5x/checkpoints.py, versions 1 to 3."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from flax import serialization

KERNEL = np.arange(12, dtype=np.float32).reshape(3, 4)
BIAS = np.arange(4, dtype=np.float32)


def write_t5x(folder: Path, version: int = 3, *, is_partitioned: bool = True) -> None:
    """Kernels stand in zarr directories named after them, specs for them in `checkpoint`; biases stand inline."""
    folder.mkdir(parents=True)

    def leaf(name: str, values: np.ndarray) -> Any:
        if not is_partitioned:
            return values
        path = name.replace("/", ".")
        spec: dict[str, Any] = {
            "driver": "zarr",
            "dtype": values.dtype.name,
            "kvstore": {"driver": "file", "path": path},
            "metadata": {"shape": list(values.shape), "chunks": list(values.shape)},
        }
        spec["metadata"]["compressor"] = {"id": "gzip", "level": 1}
        local = {**spec, "kvstore": {"driver": "file", "path": f"{folder}/{path}"}}
        ts.open(local, create=True).result().write(values).result()
        if version < 3:  # TensorStore before 0.1.14 had the path beside the driver
            spec["path"] = spec["kvstore"].pop("path")
        return spec

    dense = "decoder/layers_0/mlp/wi"
    state = {
        "target": {
            "decoder": {"mlp": {"kernel": leaf(f"target/{dense}/kernel", KERNEL), "bias": BIAS}}
        },
        "state": {
            "step": np.int32(1000),
            "param_states": {
                "decoder": {"mlp": {"kernel": {"v": leaf(f"state/param_states/{dense}/v", KERNEL)}}}
            },
        },
    }
    content = serialization.to_bytes({"version": version, "optimizer": state})
    (folder / "checkpoint").write_bytes(content)
