"""T5X checkpoints as T5X writes them, built from the published structure: t5x/checkpoints.py, versions 1 to 3.

T5X itself does not install beside today's JAX. What is done here is what its ``Checkpointer.save`` does: a
``tensorstore.Spec`` for every array that is partitioned, made by TensorStore, written with relative paths; Flax packs
the tree, in which specs stand as the JSON that TensorStore makes of them. T5X's Adafactor keeps four slots for every
param, those that it does not use as ``zeros((1,))`` inline.
"""

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import tensorstore as ts
from flax import serialization, traverse_util

KERNEL = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
SCALE = np.arange(4, dtype=np.float32) + 1
PARAMS = {
    "decoder": {
        "layers_0": {"mlp": {"wi": {"kernel": KERNEL}}, "norm": {"scale": SCALE}},
        "logits_dense": {"kernel": KERNEL.T.copy()},
    },
    "token_embedder": {"embedding": np.ones((6, 4), np.float32) / 3},
}

serialization.register_serialization_state(
    ts.Spec, ty_to_state_dict=lambda spec: spec.to_json(), ty_from_state_dict=None, override=True
)


def adafactor_slots(param: np.ndarray) -> dict[str, np.ndarray]:
    """What T5X's Adafactor keeps of a param; matrices are factored."""
    none = np.zeros((1,), np.float32)
    if param.ndim == 2:
        squares = np.square(param)
        less, more = np.argsort(param.shape)
        return {"m": none, "v": none, "v_col": squares.mean(less), "v_row": squares.mean(more)}
    return {"m": none, "v": np.square(param), "v_col": none, "v_row": none}


def train_state(params: Any = PARAMS, step: int = 1000) -> dict[str, Any]:
    """The state dict of T5X's ``FlaxOptimTrainState``."""
    slots = jax.tree.map(adafactor_slots, params)
    return {"target": params, "state": {"step": np.int32(step), "param_states": slots}}


def write_t5x(
    folder: Path,
    version: int = 3,
    *,
    is_partitioned: bool = True,
    state: dict[str, Any] | None = None,
    driver: str = "file",
) -> Path:
    """All arrays with more than one element stand in folders named after them, the others inline."""
    folder.mkdir(parents=True)

    def leaf(path: tuple[str, ...], values: np.ndarray) -> Any:
        if not is_partitioned or values.size < 2:
            return values
        name = ".".join(path)
        if version < 3 and values.dtype == ml_dtypes.bfloat16:
            values = values.view(np.uint16)
        metadata = {
            "compressor": {"id": "gzip"},
            "shape": values.shape,
            "chunks": np.array([-(-n // 2) for n in values.shape]),
        }
        spec = {"driver": "zarr", "dtype": values.dtype.name, "metadata": metadata}
        place = str(folder / name)
        local = ts.Spec({**spec, "kvstore": {"driver": "file", "path": place}})
        ts.open(local, create=True, open=True).result().write(values).result()
        if version == 3 and driver == "file":
            return ts.Spec({**spec, "kvstore": {"driver": driver, "path": name}})
        document = ts.Spec({**spec, "kvstore": {"driver": "file", "path": name}}).to_json()
        document["kvstore"]["driver"] = driver
        if driver == "gcs":
            document["kvstore"]["bucket"] = "t5x-dummy-bucket"
        if version < 3:  # TensorStore before 0.1.14 had the path beside the driver
            document["path"] = document["kvstore"].pop("path").rstrip("/")
        return _Json(document)

    flat = traverse_util.flatten_dict(state or train_state())
    written = traverse_util.unflatten_dict({path: leaf(path, v) for path, v in flat.items()})
    content = serialization.to_bytes({"version": version, "optimizer": written})
    (folder / "checkpoint").write_bytes(content)
    return folder


class _Json:
    """A spec as another TensorStore would have given its JSON: an older one, or that of Google."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document


serialization.register_serialization_state(
    _Json, ty_to_state_dict=lambda spec: spec.document, ty_from_state_dict=None, override=True
)


def load_t5x(folder: Path) -> dict[str, Any]:
    """What ``t5x.checkpoints.load_t5x_checkpoint`` makes of it: Flax restores, TensorStore opens the specs."""
    content = serialization.msgpack_restore((folder / "checkpoint").read_bytes())
    assert content["version"] in (2, 3)
    flat = traverse_util.flatten_dict(
        content["optimizer"],
        is_leaf=lambda _, value: set(value) >= {"driver", "kvstore", "metadata"},
        keep_empty_nodes=True,
    )
    return traverse_util.unflatten_dict({path: _loaded(folder, v) for path, v in flat.items()})


def _loaded(folder: Path, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value["kvstore"]["driver"] == "gfile":
        value = {**value, "kvstore": {**value["kvstore"], "driver": "file"}}
    fields = ts.Spec(value).to_json()
    assert fields["dtype"] != "uint16", "T5X says: please update saved types to bfloat16"
    del fields["metadata"]["chunks"], fields["metadata"]["compressor"]
    name = fields["kvstore"]["path"]
    assert not Path(name).is_absolute()
    fields["kvstore"] = {"driver": "file", "path": str(folder / name)}
    return ts.open(fields, open=True).result().read().result()
