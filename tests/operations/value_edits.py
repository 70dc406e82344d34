"""Value edits on arrays in memory: the step that an edit makes of a leaf, computed block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.recipe import Draft, LeafRef, Recipe, Step
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Kit, LeafOperation, Operation, Place
from surgery_cli.resolution.selection import select
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

KERNEL = LeafPath(("params", "Dense_0", "kernel"))


def spec_of(array: Any, **fields: Any) -> LeafSpec:
    return LeafSpec(
        **{"kind": LeafKind.ARRAY, "shape": array.shape, "dtype": array.dtype.name, **fields}
    )


def path_of(text: str) -> LeafPath:
    return LeafPath(text.split("/")) if text else LeafPath()


class ArraySource:
    """Arrays by printed path, as a source that edits may take leaves from."""

    fingerprint = "array-source"

    def __init__(self, arrays: Mapping[str, Any], **fields: Any) -> None:
        self.arrays = {path_of(text): array for text, array in arrays.items()}
        self.tree = TreeSpec({p: spec_of(array, **fields) for p, array in self.arrays.items()})


class ArrayScene:
    """A scene whose sources are given, and in which twins stay as they are."""

    seed = 0

    def __init__(self, **sources: ArraySource) -> None:
        self.sources = {name.replace("__", "."): source for name, source in sources.items()}
        self.carried_leaves: list[LeafPath] = []

    def select(self, edit: Operation, draft: Draft) -> Selection:
        return select(edit, draft)

    def open(self, text: str) -> tuple[str, ArraySource]:
        if text not in self.sources:
            raise PlanError(f"'{text}' is neither a file, a checkpoint nor a source")
        return text, self.sources[text]

    def policy(self, edit: Operation) -> str | None:
        return None

    def carried(
        self, draft: Draft, edit: LeafOperation, edited: Sequence[LeafPath], before: Draft
    ) -> Draft:
        self.carried_leaves = list(edited)
        return draft


def draft_of(arrays: Mapping[str, Any]) -> Draft:
    return Draft.of(ArraySource(arrays).tree, "tree")


def edited(
    operation: LeafOperation,
    array: Any,
    *,
    block: tuple[int, ...] | None = None,
    kit: Kit | None = None,
    path: LeafPath = KERNEL,
    scene: ArrayScene | None = None,
) -> Any:
    """The leaf after the edit, which is computed in blocks of this shape."""
    scene = scene or ArrayScene()
    step = operation.step(path, spec_of(array), scene)
    return computed(step, array, array, block=block, kit=kit, scene=scene)


def followed(
    operation: LeafOperation, twin: Any, param: Any, *, scene: ArrayScene | None = None
) -> Any:
    """A twin after an operation that ``carry`` gave, with its param as it was before the edit."""
    scene = scene or ArrayScene()
    recipe = Recipe(LeafRef("", KERNEL), spec_of(param))
    step = operation.step_on_twin(path_of("opt_state/mu"), spec_of(twin), scene, recipe)
    return computed(step, twin, param, scene=scene)


def computed(
    step: Step,
    array: Any,
    measured_array: Any,
    *,
    block: tuple[int, ...] | None = None,
    kit: Kit | None = None,
    scene: ArrayScene,
) -> Any:
    kit = kit or HostKit()
    arrays = {o.name: scene.sources[o.ref.source].arrays[o.ref.path] for o in step.operands}
    measured: Any = None
    if step.operation.measures:
        joined = getattr(np, step.operation.combine)
        before = spec_of(measured_array)
        axes = step.operation.measured_axes(measured_array.ndim)
        measured = np.zeros([1 if n in axes else s for n, s in enumerate(before.shape)])
        for window in blocks(before.shape, block or before.shape):
            part = kit.put(measured_array[window], before)
            at = Place(step.path, before, before, _start(window), part.shape)
            share = kit.fetch(step.operation.measure(part, kit, at))
            to = tuple(slice(0, 1) if n in axes else s for n, s in enumerate(window))
            measured[to] = joined(measured[to], share)
        measured = step.operation.finish(measured, step.path)
    parts = {}
    for window in blocks(step.before.shape, block or step.before.shape):
        part = array[window]
        beside = {name: _broadcast(a, step.before.shape)[window] for name, a in arrays.items()}
        place = Place(
            step.path, step.before, step.after, _start(window), part.shape, measured, beside
        )
        given = None if step.operation.ignores_leaf else kit.put(part, step.before)
        parts[_start(window)] = (window, kit.fetch(step.operation.compute(given, kit, place)))
    dtype = next(iter(parts.values()))[1].dtype
    assert dtype.name == step.after.dtype
    result = np.empty(step.after.shape, dtype)
    for window, values in parts.values():
        assert values.shape == result[window].shape
        result[window] = values
    return result


def _broadcast(array: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.asarray(array), shape)


def _start(window: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(s.start for s in window)


def blocks(shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The grid of blocks that covers ``shape``."""
    return product(
        *(
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(shape, block, strict=True)
        )
    )
