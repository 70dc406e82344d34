"""How a tree is saved and what Orbax itself (or Flax, for its one-file format) restores, without a target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import serialization

from tests.random_plans.model import Path, flat

STEP = 7


@dataclass(frozen=True)
class Layout:
    """``is_step``: a run of a manager; ``has_items``: each first key is an item of its own."""

    name: str
    ocdbt: bool = True
    zarr3: bool = False
    is_step: bool = False
    has_items: bool = False

    @property
    def is_file(self) -> bool:
        return self.name == "msgpack"

    def save(self, path: File, tree: Any) -> None:
        if self.is_file:
            path.write_bytes(serialization.to_bytes(tree))
        elif self.is_step:
            items = tree if self.has_items else {"default": tree}
            options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
            with ocp.CheckpointManager(path, options=options) as manager:
                saves = {name: ocp.args.PyTreeSave(item) for name, item in items.items()}
                args = ocp.args.Composite(**saves) if self.has_items else saves["default"]
                manager.save(STEP, args=args)
        else:
            handler = ocp.PyTreeCheckpointHandler(use_ocdbt=self.ocdbt, use_zarr3=self.zarr3)
            with ocp.Checkpointer(handler) as checkpointer:
                checkpointer.save(path, args=ocp.args.PyTreeSave(tree))

    def restore(
        self, path: File, items: tuple[str, ...] = (), own: str = "default"
    ) -> dict[Path, Any]:
        """What stands on disk, flat; ``items``: the names of the trees, if they are first keys, else ``own`` is."""
        if self.is_file:
            return flat(serialization.msgpack_restore(path.read_bytes()))
        with ocp.PyTreeCheckpointer() as checkpointer, jax.enable_x64(True):
            if items:
                found = {name: checkpointer.restore(path / str(STEP) / name) for name in items}
                return {
                    (name, *tail): value
                    for name, tree in found.items()
                    for tail, value in flat(tree).items()
                }
            return flat(checkpointer.restore(path / str(STEP) / own if self.is_step else path))


LAYOUTS = [
    Layout("ocdbt-zarr2"),
    Layout("leaves-zarr2", ocdbt=False),
    Layout("ocdbt-zarr3", zarr3=True),
    Layout("leaves-zarr3", ocdbt=False, zarr3=True),
    Layout("msgpack"),
    Layout("manager", is_step=True),
    Layout("items", is_step=True, has_items=True),
]


def as_numpy(value: Any) -> Any:
    """Arrays of JAX as NumPy's; everything else as it is."""
    return np.asarray(value) if isinstance(value, jax.Array) else value
