"""Every way in which Orbax and Flax save a state, and the restore that a training script would run on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import serialization
from orbax.checkpoint import v1

from tests.judge.targets import Target, as_items

STEP = 7
"""The step that is edited; roots hold an earlier one, too."""
METRICS = {"loss": 0.25, "accuracy": 0.5}


@dataclass(frozen=True)
class Layout:
    """``save(directory, state)`` gives what `surgery` is pointed at; ``restore(path, target)`` reads what came out.

    ``before`` gives the state as it is saved (Composite steps hold a dict of items); ``inspect_result`` looks at
    everything beside the leaves: steps, metrics, other items. ``plain`` is a restore without a target.
    """

    name: str
    save: Callable[[Path, Any], Path]
    restore: Callable[[Path, Any], Any]
    plain: Callable[[Path], Any] | None = None
    before: Callable[[Any], Any] = lambda state: state
    check: Callable[[Path], None] = lambda path: None
    has_items: bool = False
    not_for: frozenset[str] = field(default_factory=frozenset)
    """Targets that the original save refuses, or cannot restore itself."""

    def supports(self, target: Target) -> bool:
        return target.name not in self.not_for


# -- flat directories of v0 -----------------------------------------------------------------------------------------


def _standard_save(directory: Path, state: Any) -> Path:
    path = directory / "standard"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return path


def standard_restore(path: Path, target: Any) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def _standard_plain(path: Path) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def pytree_checkpointer(*, ocdbt: bool, zarr3: bool) -> ocp.Checkpointer:
    """The older checkpointer, in one of its four array layouts."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    return ocp.Checkpointer(handler)


def pytree_restore(path: Path, target: Any) -> Any:
    """A restore with the arguments that restore every leaf as its target says."""
    restore_args = ocp.checkpoint_utils.construct_restore_args(target)
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(
            path, args=ocp.args.PyTreeRestore(item=target, restore_args=restore_args)
        )


def pytree_plain(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def _pytree(*, ocdbt: bool, zarr3: bool) -> Layout:
    def save(directory: Path, state: Any) -> Path:
        path = directory / "pytree"
        with pytree_checkpointer(ocdbt=ocdbt, zarr3=zarr3) as checkpointer:
            checkpointer.save(path, args=ocp.args.PyTreeSave(state))
        return path

    name = f"{'ocdbt' if ocdbt else 'leaves'}-zarr{3 if zarr3 else 2}"
    return Layout(name, save, pytree_restore, pytree_plain)


# -- managers ------------------------------------------------------------------------------------------------------


def manager(root: Path, **options: Any) -> ocp.CheckpointManager:
    """A manager that keeps the step with the lowest loss in mind."""
    settings = ocp.CheckpointManagerOptions(
        best_fn=lambda metrics: metrics["loss"],
        best_mode="min",
        enable_async_checkpointing=False,
        **options,
    )
    return ocp.CheckpointManager(root, options=settings)


def _manager_save(directory: Path, state: Any, **options: Any) -> Path:
    root = directory / "run"
    with manager(root, **options) as opened:
        early = jax.tree.map(lambda leaf: leaf, state)
        for step, loss in ((3, 0.5), (STEP, METRICS["loss"])):
            args = ocp.args.StandardSave(early)
            opened.save(step, args=args, metrics={**METRICS, "loss": loss})
    return root


def _manager_restore(root: Path, target: Any, **options: Any) -> Any:
    with manager(root, read_only=True, **options) as opened:
        return opened.restore(opened.latest_step(), args=ocp.args.StandardRestore(target))


def _manager_plain(root: Path, **options: Any) -> Any:
    with manager(root, read_only=True, **options) as opened:
        return opened.restore(opened.latest_step(), args=ocp.args.StandardRestore())


def _manager_check(root: Path, **options: Any) -> None:
    """The manager knows its step, finds it best and reads its metrics as before."""
    with manager(root, read_only=True, **options) as opened:
        assert opened.all_steps() == [STEP]
        assert (opened.latest_step(), opened.best_step()) == (STEP, STEP)
        assert opened.metrics(STEP) == METRICS


PREFIX = {"step_prefix": "ckpt", "step_format_fixed_length": 6}


def _step_save(directory: Path, state: Any) -> Path:
    return _manager_save(directory, state) / str(STEP)


def _step_restore(step: Path, target: Any) -> Any:
    """A step by itself, put where a manager looks for it."""
    return standard_restore(step / "default", target)


def _step_check(step: Path) -> None:
    root = step.parent / "as_a_root"
    root.mkdir()
    (root / str(STEP)).symlink_to(step, target_is_directory=True)
    _manager_check(root)


def _item_save(directory: Path, state: Any) -> Path:
    return _manager_save(directory, state) / str(STEP) / "default"


NOTE = {"epoch": 4, "note": "ein Wörtchen"}


def _composite_save(directory: Path, state: Any) -> Path:
    root = directory / "run"
    with manager(root) as opened:
        opened.save(
            STEP,
            args=ocp.args.Composite(
                **{name: ocp.args.StandardSave(item) for name, item in state.items()},
                extra=ocp.args.JsonSave(NOTE),
            ),
            metrics=METRICS,
        )
    return root


def _composite_restore(root: Path, target: Any) -> Any:
    with manager(root, read_only=True) as opened:
        restored = opened.restore(
            STEP,
            args=ocp.args.Composite(
                **{name: ocp.args.StandardRestore(item) for name, item in target.items()},
                extra=ocp.args.JsonRestore(),
            ),
        )
    assert restored["extra"] == NOTE
    return {name: restored[name] for name in target}


# -- v1 --------------------------------------------------------------------------------------------------------------


def _v1_save(directory: Path, state: Any) -> Path:
    path = directory / "v1"
    v1.save(path, state)
    return path


def _v1_save_items(directory: Path, state: Any) -> Path:
    path = directory / "v1_items"
    v1.save_checkpointables(path, state)
    return path


def _v1_load_items(path: Path, target: Any) -> Any:
    return v1.load_checkpointables(path, target)


def _v1_training_save(directory: Path, state: Any) -> Path:
    root = directory / "v1_training"
    with v1.training.Checkpointer(root) as checkpointer:
        checkpointer.save(STEP, state, metrics=METRICS)
    return root


def _v1_training_load(root: Path, target: Any) -> Any:
    with v1.training.Checkpointer(root) as checkpointer:
        return checkpointer.load(STEP, target)


def _v1_training_check(root: Path) -> None:
    with v1.training.Checkpointer(root) as checkpointer:
        assert [found.step for found in checkpointer.checkpoints] == [STEP]
        assert checkpointer.latest.step == STEP
        assert checkpointer.checkpoints[0].metrics == METRICS


# -- Flax ------------------------------------------------------------------------------------------------------------


def _flax_save(directory: Path, state: Any) -> Path:
    path = directory / "checkpoint_7"
    path.write_bytes(serialization.to_bytes(state))
    return path


def _flax_restore(path: Path, target: Any) -> Any:
    return serialization.from_bytes(target, path.read_bytes())


def _flax_plain(path: Path) -> Any:
    return serialization.msgpack_restore(path.read_bytes())


# -- four devices ----------------------------------------------------------------------------------------------------


def on_four_devices(state: Any) -> Any:
    """Arrays spread over a mesh of two by two devices where their shapes allow it."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))

    def spread(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        axes = zip(leaf.shape, ("data", "model"), strict=False)
        spec = jax.sharding.PartitionSpec(*(axis if n % 2 == 0 and n else None for n, axis in axes))
        return jax.device_put(leaf, jax.sharding.NamedSharding(mesh, spec))

    return jax.tree.map(spread, state)


def _sharded(*, ocdbt: bool, zarr3: bool) -> Layout:
    layout = _pytree(ocdbt=ocdbt, zarr3=zarr3)
    return Layout(
        f"sharded-{layout.name}", layout.save, layout.restore, layout.plain, before=on_four_devices
    )


LAYOUTS = [
    Layout("standard", _standard_save, standard_restore, _standard_plain),
    *(_pytree(ocdbt=ocdbt, zarr3=zarr3) for ocdbt in (True, False) for zarr3 in (False, True)),
    Layout("manager", _manager_save, _manager_restore, _manager_plain, check=_manager_check),
    Layout(
        "manager-prefix",
        lambda directory, state: _manager_save(directory, state, **PREFIX),
        lambda root, target: _manager_restore(root, target, **PREFIX),
        check=lambda root: _manager_check(root, **PREFIX),
    ),
    Layout("manager-step", _step_save, _step_restore, check=_step_check),
    Layout("manager-item", _item_save, standard_restore, _standard_plain),
    Layout(
        "composite",
        _composite_save,
        _composite_restore,
        before=as_items,
        check=_manager_check,
        has_items=True,
    ),
    Layout("v1", _v1_save, v1.load, v1.load),
    Layout(
        "v1-items",
        _v1_save_items,
        _v1_load_items,
        v1.load_checkpointables,
        before=as_items,
        has_items=True,
    ),
    Layout("v1-training", _v1_training_save, _v1_training_load, check=_v1_training_check),
    Layout(
        "flax-msgpack",
        _flax_save,
        _flax_restore,
        _flax_plain,
        not_for=frozenset({"nnx"}),  # Flax itself does not serialize an nnx.State
    ),
    _sharded(ocdbt=True, zarr3=False),
    _sharded(ocdbt=False, zarr3=True),
]
