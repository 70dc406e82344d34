"""Recipe to values: reads what a leaf is made of, block by block, and applies its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from surgery_cli.draft import LeafRecipe, LeafRef, Step
from surgery_cli.engine.grid import Window, block_shape, window_shape, windows
from surgery_cli.engine.reading import Readable, Values, read_values
from surgery_cli.operations.base import Cut, Kit, Place
from surgery_cli.tree.specs import LeafKind, LeafSpec, item_bytes


class Evaluation:
    """One recipe being computed: its measurements are taken first, then any block can be asked for.

    Raises (both methods):
        ValueRefusal: the values show that an edit must not be done.
        CheckpointError: a source cannot be read.
    """

    def __init__(
        self, recipe: LeafRecipe, sources: Mapping[str, Readable], kit: Kit, block: tuple[int, ...]
    ) -> None:
        self.recipe = recipe
        self.block_shape = recipe.spec.shape if is_whole(recipe) else block
        self._sources = sources
        self._kit = kit
        self._measured: list[Any] = []
        self._operands = [
            {name: self._whole(ref) for name, ref in step.operands} for step in recipe.steps
        ]
        for number, step in enumerate(recipe.steps):
            self._measured.append(self._measure(number, step) if step.operation.measures else None)

    def windows(self) -> list[Window]:
        """The blocks of the leaf, in C order."""
        return list(windows(self.recipe.spec.shape, self.block_shape))

    @cached_property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.windows())

    def block(self, window: Window) -> Values:
        """The values of one block, in the output's dtype, C-contiguous."""
        values = self._after(len(self.recipe.steps), window)
        return np.ascontiguousarray(values).reshape(window_shape(window))

    def origin_block(self, window: Window) -> Values | None:
        """What was stored where the block stands; None if the leaf is made of nothing stored."""
        origin = self.recipe.origin
        return None if origin is None else self._read(origin, window)

    def _after(self, count: int, window: Window) -> Values:
        """The values of a block after the first ``count`` steps."""
        steps = self.recipe.steps[:count]
        first = max((i for i, s in enumerate(steps) if s.operation.ignores_leaf), default=-1)
        if first < 0:
            assert self.recipe.origin is not None
            values: Values | None = self._read(self.recipe.origin, window)
        else:
            values = None
        for number, step in enumerate(steps):
            if number < first:
                continue
            place = self._place(number, step, window)
            given = None if values is None else self._kit.put(values, step.before)
            values = self._kit.fetch(step.operation.compute(given, self._kit, place))
        assert values is not None
        return values

    def _place(self, number: int, step: Step, window: Window) -> Place:
        return Place(
            path=step.path,
            before=step.before,
            after=step.after,
            start=tuple(s.start for s in window),
            shape=window_shape(window),
            measured=self._measured[number] if number < len(self._measured) else None,
            operands=self._operands[number],
        )

    def _measure(self, number: int, step: Step) -> Any:
        """Combine the measurements of all blocks, then let the operation look at the whole."""
        if step.measured_from is not None:
            param = step.measured_from
            shape = block_shape(param.spec, param.spec.write_shape)
            other = Evaluation(param, self._sources, self._kit, shape)
            blocks = other.block
            spec, grid = param.spec, other.windows()
        else:
            blocks = lambda window: self._after(number, window)  # noqa: E731
            spec, grid = step.before, list(windows(step.before.shape, self._grid_of(step)))
        if step.operation.cut is Cut.WHOLE:
            grid = [tuple(slice(0, n) for n in spec.shape)]
        join = getattr(np, step.operation.combine)
        total: Any = None
        axes = step.operation.measured_axes(len(spec.shape))
        for window in grid:
            place = self._place(number, step, window)._replace(before=spec, after=spec)
            share = self._kit.fetch(
                step.operation.measure(self._kit.put(blocks(window), spec), self._kit, place)
            )
            if len(grid) == 1:
                total = share
                break
            if total is None:
                total = np.zeros(
                    tuple(1 if i in axes else n for i, n in enumerate(spec.shape)), share.dtype
                )
            at = tuple(slice(0, 1) if i in axes else s for i, s in enumerate(window))
            total[at] = join(total[at], share)
        return step.operation.finish(total, step.path)

    def _grid_of(self, step: Step) -> tuple[int, ...]:
        if step.before.shape == self.recipe.spec.shape:
            return self.block_shape
        return block_shape(step.before, step.before.write_shape)

    def _read(self, ref: LeafRef, window: Window) -> Values:
        return read_values(self._sources[ref.source], ref.path, window)

    def _whole(self, ref: LeafRef) -> Values:
        return read_values(self._sources[ref.source], ref.path)


def is_whole(recipe: LeafRecipe) -> bool:
    """True if a step needs the whole leaf in memory, or the values are no array."""
    return any(step.operation.cut is Cut.WHOLE for step in recipe.steps) or (
        recipe.spec.kind is LeafKind.STRING
    )


def working_bytes(spec: LeafSpec, block: tuple[int, ...]) -> int:
    """Bytes in memory while one block is worked on: as read, as written, and as float64 with its temporaries."""
    return math.prod(block) * (2 * item_bytes(spec.dtype) + 24)
