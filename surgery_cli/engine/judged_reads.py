"""How values are read to be judged where blocks as they are stored would take more memory than there may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from surgery_cli.compute.host import HostKit
from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.draft.expression import Recipe, Stored, stored_in
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.bounded_reads import (
    Reading,
    Shape,
    chunk_bytes,
    halved,
    meeting,
    met_by,
    shared_unit,
)
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.digests import digest_reading
from surgery_cli.engine.forecast import by_chunk_bytes, reading_bytes, working_bytes
from surgery_cli.engine.grid import BLOCK_BYTES, block_shape, relative, window_shape
from surgery_cli.engine.reading import Readable, read_values
from surgery_cli.store.orbax.chunk_keeper import keeping_no_chunks
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

TILES = HostKit.tile_elements


class ByChunk:
    """A source of which a block is put together of what it has of one chunk after the other, none of which is kept."""

    def __init__(self, source: Readable, specs: Mapping[LeafPath, LeafSpec]) -> None:
        self._source = source
        self._specs = specs

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        spec = self._specs[path]
        if window is None or spec.chunk_shape is None:
            return self._source.read(path, window)
        with keeping_no_chunks():
            pieces = list(met_by(window, spec.chunk_shape))
            if len(pieces) == 1:
                return self._source.read(path, window)
            values = np.empty(window_shape(window), numpy_dtype(spec.dtype))
            for piece in pieces:
                values[relative(piece, window)] = read_values(self._source, path, piece)
            return values


def by_chunk(sources: Mapping[str, Readable], recipe: Recipe) -> dict[str, Readable]:
    """The sources, of which what a recipe is made of is read chunk by chunk."""
    specs: dict[str, dict[LeafPath, LeafSpec]] = {}
    for part in stored_in(recipe):
        specs.setdefault(part.ref.source, {})[part.ref.path] = part.spec
    return {name: ByChunk(sources[name], known) for name, known in specs.items()}


def held_at_once(recipe: Recipe, block: Shape, memory_bytes: int, tiles: int | None = TILES) -> int:
    """Bytes in memory while a block of a recipe is read, or made, and looked at; all of it where that is made whole."""
    if isinstance(recipe, Stored):
        return reading_bytes(recipe.spec, block)
    made = Composition(recipe, memory_bytes)
    shape = recipe.spec.shape if made.is_whole else block
    values = math.prod(shape) * item_bytes(recipe.spec.dtype) if recipe.spec.has_array else 0
    return working_bytes(made, shape, tiles) + values


def compared_reading(
    recipe: Recipe, other: Recipe, block: Shape, memory_bytes: int
) -> Reading | None:
    """How two leaves are read to be compared, so that their chunks are decoded least often.

    None if they are read in blocks of that shape, which is within the memory, or as little as can be.
    """
    both = (recipe, other)
    taken = sum(held_at_once(one, block, memory_bytes) for one in both)
    if taken <= memory_bytes or not all(map(_can_be_cut, both)):
        return None
    found = _compared(both, memory_bytes)
    return found if found.held_bytes + BLOCK_BYTES < taken else None


def digested_reading(recipe: Recipe, grid: Shape, memory_bytes: int) -> Reading | None:
    """How a leaf is read to be digested over a grid; None if it is read in blocks of it.

    Parts of what is computed may take several times what those of a stored leaf do.
    """
    spec = recipe.spec
    taken = held_at_once(recipe, block_shape(spec, grid), memory_bytes)
    if taken <= memory_bytes or not _can_be_cut(recipe):
        return None
    count = 1 if isinstance(recipe, Stored) else 2 + len(set(stored_in(recipe)))
    stored = next((part.spec for part in stored_in(recipe) if part.spec.shape == spec.shape), spec)
    found = digest_reading(stored, memory_bytes // count, grid)
    if not isinstance(recipe, Stored):
        made = Composition(recipe, memory_bytes)
        held = (
            by_chunk_bytes(made, found.part, TILES)
            if found.is_by_chunk
            else working_bytes(made, found.part, TILES)
        )
        found = found._replace(held_bytes=held)
    return found if found.held_bytes + BLOCK_BYTES < taken else None


def enough_bytes(specs: Iterable[LeafSpec], within: Callable[[int], Reading | None]) -> int:
    """A bound within which the chunks of a leaf are decoded once."""
    low, high = 0, 8 * sum(spec.bytes for spec in specs)
    while low < high:
        middle = (low + high) // 2
        found = within(middle)
        low, high = (low, middle) if found is None or found.times == 1 else (middle + 1, high)
    return low


def _can_be_cut(recipe: Recipe) -> bool:
    made = Composition(recipe)
    return recipe.spec.has_array and not made.is_whole and not made.measured


class _Pair(NamedTuple):
    """Two leaves that are compared, and the stored ones of their shape that they are made of."""

    made: tuple[Composition, ...]
    stored: tuple[LeafSpec, ...]

    def reading(self, part: Shape) -> Reading:
        held = sum(by_chunk_bytes(one, part, TILES) for one in self.made)
        times = max((_times(spec, part) for spec in self.stored), default=1)
        return Reading(part, part, held, times, is_by_chunk=True)


def _compared(both: tuple[Recipe, Recipe], memory_bytes: int) -> Reading:
    shape = both[0].spec.shape
    parts = [part.spec for one in both for part in stored_in(one)]
    stored = tuple(spec for spec in parts if spec.shape == shape)
    pair = _Pair(tuple(Composition(one, memory_bytes) for one in both), stored)
    least = sum(
        2 * max((chunk_bytes(p.spec, p.spec.chunk_shape) for p in stored_in(one)), default=0)
        for one in both
    )
    limit = max(memory_bytes, least + BLOCK_BYTES)
    unit = shared_unit(shape, stored)
    own = [spec.write_shape or spec.chunk_shape for spec in stored]
    for one in (*own, unit):
        found = pair.reading(block_shape(both[0].spec, one))
        if found.times == 1 and found.held_bytes <= limit:
            return found
    found = pair.reading(shape)
    while found.held_bytes > limit and math.prod(found.part) > 1:
        part = found.part
        smaller = [pair.reading(halved(part, axis, unit)) for axis, n in enumerate(part) if n > 1]
        found = min(smaller, key=lambda one: (one.times, one.held_bytes))
    return found


def _times(spec: LeafSpec, part: Shape) -> int:
    """The most that a chunk is decoded where parts of that shape are read, and no chunk is kept."""
    axes = zip(part, spec.chunk_shape or part, spec.shape, strict=True)
    return math.prod(meeting(*axis) for axis in axes)
