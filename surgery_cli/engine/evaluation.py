"""Recipe to values: reads what a leaf is made of, block by block, and applies its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from surgery_cli.draft.recipe import LeafRef, Recipe, Step
from surgery_cli.engine import operands
from surgery_cli.engine.grid import (
    Window,
    block_shape,
    kept_bytes,
    relative,
    window_shape,
    windows,
)
from surgery_cli.engine.operands import BlockOperands
from surgery_cli.engine.reading import Readable, Values, read_values
from surgery_cli.operations.base import Cut, Kit, Place
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

TEMPORARY_BYTES = 48
"""Temporaries of an operation, per element, where it computes a block at once: float64 and its like."""


class Evaluation:
    """One recipe being computed, block by block. Blocks may be asked for from threads, once ``measured`` is full.

    Raises (all methods that read):
        ValueRefusal: the values show that an edit must not be done.
        CheckpointError: a source cannot be read.
    """

    def __init__(
        self, recipe: Recipe, sources: Mapping[str, Readable], kit: Kit, block: tuple[int, ...]
    ) -> None:
        self.recipe = recipe
        self.block_shape = recipe.spec.shape if is_whole(recipe) else block
        self.windows: list[Window] = list(windows(recipe.spec.shape, self.block_shape))
        """The blocks of the leaf, in C order."""
        self.measured: dict[int, Any] = {}
        """What the measurement of a step gave, by the step's number."""
        self._sources = sources
        self._kit = kit
        self._others: dict[int, Evaluation] = {}
        self._only_block: Values | None = None

    @property
    def measuring(self) -> list[int]:
        """The numbers of the steps that measure, in the order in which they have to."""
        return [n for n, step in enumerate(self.recipe.steps) if step.operation.measures]

    def measure(self) -> None:
        """Take every measurement, one block after the other."""
        for number in self.measuring:
            shares = [self.share(number, window) for window in self.windows_of(number)]
            self.conclude(number, shares)

    def windows_of(self, number: int) -> list[Window]:
        """The blocks over which a step is measured: the leaf's own, or those of the param that it follows."""
        other = self._other(number)
        if self.recipe.steps[number].operation.cut is Cut.WHOLE:
            return [tuple(slice(0, n) for n in self._measured_spec(number).shape)]
        return self.windows if other is None else other.windows

    def share(self, number: int, window: Window) -> Values:
        """What one block adds to the measurement of a step."""
        step = self.recipe.steps[number]
        spec = self._measured_spec(number)
        other = self._other(number)
        values = self._after(number, window) if other is None else other.block(window)
        shares = []
        reading = BlockOperands(step, self._sources, window)
        for tile in self._tiles(window, is_whole=step.operation.cut is Cut.WHOLE):
            place = self._place(number, tile, reading)._replace(before=spec, after=spec)
            block = self._kit.put(values[relative(tile, window)], spec)
            shares.append((tile, self._kit.fetch(step.operation.measure(block, self._kit, place))))
        return _joined(step, shares, window)

    def conclude(self, number: int, shares: Sequence[Values]) -> None:
        """Join the shares of ``windows_of``, in their order, and let the operation look at the whole."""
        step = self.recipe.steps[number]
        shape = self._measured_spec(number).shape
        whole = tuple(slice(0, n) for n in shape)
        parts = list(zip(self.windows_of(number), shares, strict=True))
        self.measured[number] = step.operation.finish(
            _joined(step, parts, whole), _measured_path(step)
        )

    def block(self, window: Window) -> Values:
        """The values of one block, in the output's dtype, C-contiguous."""
        values = self._after(len(self.recipe.steps), window)
        if len(self.windows) == 1:
            self._only_block = None
        return np.ascontiguousarray(values).reshape(window_shape(window))

    def _after(self, count: int, window: Window) -> Values:
        """The values of a block after the first ``count`` steps.

        They are computed tile by tile, so that temporaries stay small and in the processor's cache.
        """
        steps = self.recipe.steps[:count]
        first = max((i for i, s in enumerate(steps) if s.operation.ignores_leaf), default=0)
        values = None
        if not (steps and steps[first].operation.ignores_leaf):
            assert self.recipe.origin is not None
            values = self._origin(self.recipe.origin, window)
            if not steps:
                return values
        chosen = {n: BlockOperands(steps[n], self._sources, window) for n in range(first, count)}
        is_divisible = all(
            step.before.shape == step.after.shape
            and step.operation.cut is not Cut.WHOLE
            and operands.are_kept(step)
            for step in steps
        )
        tiles = list(self._tiles(window, is_whole=not is_divisible))
        if len(tiles) == 1:
            return self._through(chosen, values, window)
        out: Values | None = None
        for tile in tiles:
            place = relative(tile, window)
            done = self._through(chosen, None if values is None else values[place], tile)
            if out is None:
                out = np.empty(window_shape(window), done.dtype)
            out[place] = done
        assert out is not None
        return out

    def _through(
        self, chosen: Mapping[int, BlockOperands], values: Values | None, window: Window
    ) -> Values:
        """Apply the chosen steps to a block or tile, with what each reads beside it."""
        for number, reading in chosen.items():
            step = self.recipe.steps[number]
            given = None if values is None else self._kit.put(values, step.before)
            place = self._place(number, window, reading)
            values = self._kit.fetch(step.operation.compute(given, self._kit, place))
        assert values is not None
        return values

    def _tiles(self, window: Window, *, is_whole: bool) -> Iterator[Window]:
        limit = self._kit.tile_elements
        shape = window_shape(window)
        if is_whole or limit is None or math.prod(shape) <= limit:
            yield window
            return
        tile = list(shape)
        for axis in range(len(shape)):
            rest = math.prod(shape[axis + 1 :])
            tile[axis] = max(min(limit // max(rest, 1), shape[axis]), 1)
            if rest <= limit:
                break
        for part in windows(shape, tuple(tile)):
            yield tuple(
                slice(w.start + p.start, w.start + p.stop)
                for w, p in zip(window, part, strict=True)
            )

    def _place(self, number: int, window: Window, reading: BlockOperands) -> Place:
        step = self.recipe.steps[number]
        return Place(
            path=step.path,
            before=step.before,
            after=step.after,
            start=tuple(s.start for s in window),
            shape=window_shape(window),
            measured=self.measured.get(number),
            operands=reading.of_tile(window),
        )

    def _other(self, number: int) -> Evaluation | None:
        """The evaluation of the recipe that a step is measured from, its own measurements taken."""
        param = self.recipe.steps[number].measured_from
        if param is None:
            return None
        if number not in self._others:
            shape = block_shape(param.spec, param.spec.write_shape)
            other = Evaluation(param, self._sources, self._kit, shape)
            other.measure()
            self._others[number] = other
        return self._others[number]

    def _measured_spec(self, number: int) -> LeafSpec:
        step = self.recipe.steps[number]
        return step.before if step.measured_from is None else step.measured_from.spec

    def _origin(self, ref: LeafRef, window: Window) -> Values:
        """A block as stored; the only block of a leaf that is measured is kept until it is computed."""
        if len(self.windows) > 1 or not self.measuring:
            return self._read(ref, window)
        if self._only_block is None:
            self._only_block = self._read(ref, window)
        return self._only_block

    def _read(self, ref: LeafRef, window: Window) -> Values:
        return read_values(self._sources[ref.source], ref.path, window)


def _measured_path(step: Step) -> LeafPath:
    """Where the values stand that are measured: the leaf itself, or the param that it follows."""
    param = step.measured_from
    if param is None:
        return step.path
    if param.steps:
        return param.steps[-1].path
    return param.origin.path if param.origin is not None else step.path


def _joined(step: Step, shares: Sequence[tuple[Window, Values]], whole: Window) -> Values:
    """The measurement of ``whole`` from those of its parts: [its shape, reduced axes of size 1]."""
    if len(shares) == 1:
        return shares[0][1]
    join = getattr(np, step.operation.combine)
    axes = step.operation.measured_axes(len(whole))
    shape = tuple(1 if i in axes else n for i, n in enumerate(window_shape(whole)))
    total = np.zeros(shape, shares[0][1].dtype)
    for window, share in shares:
        at = tuple(
            slice(0, 1) if i in axes else slice(part.start - all_.start, part.stop - all_.start)
            for i, (part, all_) in enumerate(zip(window, whole, strict=True))
        )
        total[at] = join(total[at], share)
    return total


def is_whole(recipe: Recipe) -> bool:
    """True if a step needs the whole leaf in memory, or the values are no array."""
    return any(step.operation.cut is Cut.WHOLE for step in recipe.steps) or (
        recipe.spec.kind is LeafKind.STRING
    )


def read_bytes(recipe: Recipe) -> int:
    """Bytes of values that a recipe reads: once; where they are measured and more than a block, once more for that."""
    if any(step.operation.ignores_leaf for step in recipe.steps) or recipe.origin is None:
        own = 0
    else:
        own = (recipe.steps[0].before if recipe.steps else recipe.spec).bytes
    stored = block_shape(recipe.spec, recipe.spec.write_shape)
    block = recipe.spec.shape if is_whole(recipe) else stored
    total = own
    for step in recipe.steps:
        total += operands.read_bytes(step, block)
        if step.operation.measures and step.measured_from is not None:
            total += read_bytes(step.measured_from)
        elif step.operation.measures and block != recipe.spec.shape:
            total += own
    return total


def working_bytes(recipe: Recipe, block: tuple[int, ...], tile_elements: int | None) -> int:
    """Bytes in memory while a block is made, the result not counted: as stored, as read, and what computing takes.

    ``tile_elements`` is the kit's.
    """
    count = math.prod(block)
    widths = [recipe.steps[0].before.dtype] if recipe.steps else [recipe.spec.dtype]
    widths += [step.measured_from.spec.dtype for step in recipe.steps if step.measured_from]
    read = count * max(map(item_bytes, widths))
    origin = recipe.steps[0].before if recipe.steps else recipe.spec
    is_read = recipe.origin is not None and len(origin.shape) == len(block)
    kept = kept_bytes(origin, block) if is_read else 0
    has_tiles = tile_elements is not None
    beside = sum(operands.working_bytes(step, block, has_tiles=has_tiles) for step in recipe.steps)
    if is_whole(recipe):  # what was stored has been decoded by the time that the whole is computed
        given = 0 if any(step.operation.ignores_leaf for step in recipe.steps) else read
        computing = max(map(_temporary_bytes, recipe.steps), default=0)
        return kept + max(kept, given) + max(given, beside, computing)
    # a sum over many operands is taken in tiles of its own
    alone = [step for step in recipe.steps if operands.are_kept(step)]
    tile = count
    if len(alone) == len(recipe.steps) and tile_elements:
        tile = min(count, tile_elements)
    return kept + max(kept, read) + max(read, beside) + (tile * TEMPORARY_BYTES if alone else 0)


def _temporary_bytes(step: Step) -> int:
    """What a step takes that computes a whole leaf at once: as its operation knows, else as any might."""
    param = step.measured_from
    leaf = step.before if param is None else param.spec
    known = step.operation.temporary_bytes(leaf) if step.operation.cut is Cut.WHOLE else None
    held = 0 if param is None else leaf.bytes
    return held + (leaf.size * TEMPORARY_BYTES if known is None else known)
