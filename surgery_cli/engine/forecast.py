"""What a run will take at once, told from metadata: bytes in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.expression import InputSpecs, Made, Recipe, Stored, once
from surgery_cli.draft.kernel import Search, Window, broadcast_window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.composition import UNBOUNDED, Composition, Measured
from surgery_cli.engine.grid import block_shape, window_shape, windows
from surgery_cli.engine.measurements import (
    Block,
    inputs_read,
    measured_passes,
    measured_windows,
)
from surgery_cli.engine.read_forecast import window_bytes
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.specs import LeafSpec

TEMPORARY_BYTES: Final = 48
"""Temporaries of a kernel, per element, where it computes a block at once: float64 and its like."""

LEAF_OVERHEAD_BYTES: Final = 16 << 10
"""What an opened array costs beside its values; it bounds the transactions of many tiny leaves."""


def blocks_of(leaf: PlannedLeaf) -> Sequence[Window]:
    """The blocks of a leaf that are made, one after the other."""
    if leaf.referred is not None and not leaf.referred.is_read:
        return leaf.referred.written
    return list(windows(leaf.spec.shape, block_shape(leaf.spec, write_shape(leaf))))


def _block_bytes(leaf: Recipe, window: Window) -> int:
    return math.prod(window_shape(window)) * item_bytes(leaf.spec.dtype)


def kept_bytes(spec: LeafSpec, block: tuple[int, ...]) -> int:
    """Bytes of the decoded chunks that are kept between blocks, wherever these stand; 0 if blocks are whole chunks.

    >>> from surgery_cli.tree.specs import LeafKind
    >>> leaf = LeafSpec(kind=LeafKind.ARRAY, shape=(64, 8), dtype="float32", chunk_shape=(32, 8))
    >>> kept_bytes(leaf, (4, 8)), kept_bytes(leaf, (32, 8)), kept_bytes(leaf, (40, 8))
    (2048, 0, 2048)
    """
    if spec.chunk_shape is None:
        return 0
    axes = zip(block, spec.chunk_shape, spec.shape, strict=True)
    count = math.prod(chunks_around(*axis) for axis in axes)
    return count * item_bytes(spec.dtype) if count > math.prod(block) else 0


def chunks_around(part: int, chunk: int, size: int) -> int:
    """How far the chunks reach along an axis that a part of a block meets, wherever it stands.

    >>> chunks_around(4, 32, 64), chunks_around(4, 32, 100), chunks_around(32, 32, 100)
    (64, 64, 32)
    """
    one = max(chunk, 1)
    touched = part // one if part % one == 0 else -(-part // one) + 1
    return min(touched * one, size)


def reading_bytes(spec: LeafSpec, block: tuple[int, ...] | None = None) -> int:
    """Bytes in memory while a leaf is read block by block: as stored, decoded and as read, and chunks that are kept."""
    if not spec.has_array:
        return 0
    shape = block_shape(spec, spec.write_shape) if block is None else block
    read = math.prod(shape) * item_bytes(spec.dtype)
    kept = kept_bytes(spec, shape)
    return kept + max(kept, read) + read + _encoded_bytes(spec, max(kept, read))


def _encoded_bytes(spec: LeafSpec, decoded: int) -> int:
    """Bytes of so many decoded ones of a stored leaf as they are encoded; they stay until all is decoded."""
    if spec.chunk_shape is None or not spec.stored_bytes or not spec.bytes:
        return 0
    return spec.stored_bytes * min(decoded, spec.bytes) // spec.bytes


def working_bytes(of: Composition, block: tuple[int, ...], tile_elements: int | None) -> int:
    """Bytes in memory while a block is made, the result not counted: as stored, as read, and what computing takes.

    ``tile_elements`` is the kit's.
    """
    return max(_making_bytes(of, block, tile_elements), _most_measuring_bytes(of, tile_elements))


def by_chunk_bytes(of: Composition, block: tuple[int, ...], tile_elements: int | None) -> int:
    """Bytes in memory while a block is made of what is read chunk by chunk, none of which is kept; the block as well.

    Of what is whole, or measured, more is needed.
    """
    window = tuple(slice(0, n) for n in block)
    every = reads(of.recipe, window)
    held = sum(window_bytes(*one) for one in every)
    chunks = (
        2 * math.prod(part.spec.chunk_shape or window_shape(read)) * item_bytes(part.spec.dtype)
        for part, read in every
    )
    made = 0
    if not isinstance(of.recipe, Stored):
        tile = tile_elements if of.is_divisible or of.is_streamed else None
        made = _block_bytes(of.recipe, window) + (0 if of.only_moves else _tile_bytes(window, tile))
    return held + max(chunks, default=0) + made


def _making_bytes(of: Composition, block: tuple[int, ...], tile_elements: int | None) -> int:
    return _pass_bytes(of, tuple(slice(0, n) for n in block), tile_elements)


def _most_measuring_bytes(of: Composition, tile_elements: int | None) -> int:
    given = (tile_elements, of.memory_bytes)
    taken = (
        once(one.part, f"measuring_bytes {given}", partial(_most, one, *given))
        for one in of.measured
    )
    return max(taken, default=0)


def _most(measured: Measured, tile_elements: int | None, memory_bytes: int) -> int:
    """Bytes in memory while a block of a measurement is taken, or of one that it needs."""
    return max(_measuring_bytes(part, tile_elements, memory_bytes) for part in measured.order)


def _measuring_bytes(part: Made, tile_elements: int | None, memory_bytes: int) -> int:
    """Bytes in memory while a block of a measurement is taken."""
    if not part.kernel.is_whole:
        searched = part.inputs if isinstance(part.kernel, Search) else part.inputs[:1]
        blocks = [measured_windows(part, number)[0] for number in range(len(searched))]
        largest = max(zip(searched, blocks, strict=True), key=lambda one: _block_bytes(*one))
        made = _pass_bytes(Composition(largest[0], memory_bytes), largest[1], tile_elements)
        temporary = _tile_bytes(largest[1], tile_elements)
        anew = len(measured_passes(part, Block(0, largest[1]), memory_bytes))
        if anew > 1:  # a part of each, and one as it is read
            every = [window_bytes(*one) for one in inputs_read(part, Block(0, largest[1]))]
            return sum(every) // anew + 3 * max(every) + temporary
        return made + _beside_bytes(part, largest[1]) + temporary
    leaf, window = part.inputs[0], measured_windows(part, 0)[0]
    held, decoding = bytes_to_read(leaf, window)
    known = part.kernel.temporary_bytes(leaf.spec)
    return held + max(decoding, leaf.spec.size * TEMPORARY_BYTES if known is None else known)


def _beside_bytes(part: Made, window: Window) -> int:
    """Bytes of what stands beside a block that is measured: as it is stored, and as it is made if not tile by tile."""
    total = 0
    for other in () if isinstance(part.kernel, Search) else part.inputs[1:]:
        place = broadcast_window(other.spec.shape, window)
        held, decoding = bytes_to_read(other, place)
        is_tiled = isinstance(other, Stored) or Composition(other).is_divisible
        total += held + decoding + (0 if is_tiled else _block_bytes(other, place))
    return total


def _pass_bytes(of: Composition, window: Window, tile_elements: int | None) -> int:
    """Bytes in memory while a block of an expression is computed, where all is measured."""
    recipe = of.recipe
    held, decoding = bytes_to_read(recipe, window)
    if isinstance(recipe, Stored):
        return held + decoding
    if of.made_whole:  # what was stored has been decoded by the time that the whole is computed
        return held + max(decoding, *map(_temporary_bytes_of_whole, of.made_whole))
    if of.is_streamed:  # a kit without tiles has the next term and sum beside it
        every = reads(recipe, window)
        again = of.kept_again
        stays = sum(window_bytes(*one) for one in every if id(one[0]) in again)
        reading = [window_bytes(*one) for one in every]
        parts = of.passes(window)
        count = math.prod(window_shape(parts[0])) * (1 if tile_elements is not None else 3)
        temporary = _tile_bytes(window, tile_elements) + decoding + count * of.sum_bytes
        one_after_the_other = held - sum(reading) + max(reading) + temporary
        # in several passes only a part of it stays, and a part of what is read next
        stays = stays if len(parts) == 1 else (max(reading) + stays) // len(parts)
        return one_after_the_other + stays
    if all(isinstance(kernel, Arrangement) for kernel in of.kernels):
        return held + decoding
    return held + decoding + _temporary_bytes(recipe, window, tile_elements)


def _temporary_bytes_of_whole(part: Made) -> int:
    """Bytes that making a whole leaf takes beside what it is made of, which may be more than becomes of it."""
    known = part.kernel.temporary_bytes(part.spec)
    sizes = (part.spec.size, *(one.spec.size for one in part.inputs))
    return max(sizes) * TEMPORARY_BYTES if known is None else known


def _temporary_bytes(recipe: Recipe, window: Window, tile_elements: int | None) -> int:
    """Bytes that computing a block takes beside what it is made of: nothing, for elements that only move."""
    if isinstance(recipe, Stored):
        return 0
    if isinstance(recipe.kernel, Arrangement):
        pieces = recipe.kernel.pieces(window, InputSpecs(recipe), recipe.spec)
        parts = ((recipe.inputs[piece.input], piece.read) for piece in pieces)
        return max((_temporary_bytes(*part, tile_elements) for part in parts), default=0)
    is_tile = tile_elements is not None and math.prod(window_shape(window)) <= tile_elements
    is_tiled = is_tile or Composition(recipe).is_divisible
    return _tile_bytes(window, tile_elements if is_tiled else None)


def bytes_to_read(recipe: Recipe, window: Window) -> tuple[int, int]:
    """Bytes of what a block is made of, with the stored chunks that are kept for the next ones; and of decoding one.

    Chunks larger than a block are kept; of the others one is decoded at a time, beside what was read. Of what is made
    of nothing, the store has a copy while it encodes it, which elsewhere takes the place of what was read.
    """
    held = largest = 0
    parts = reads(recipe, window)
    for part, place in parts:
        shape = window_shape(place)
        read = math.prod(shape) * item_bytes(part.spec.dtype) if part.spec.has_array else 0
        kept = kept_bytes(part.spec, shape) if len(shape) == len(part.spec.shape) else 0
        held += read + kept
        largest = max(largest, read, kept)
    if not parts:
        largest = math.prod(window_shape(window)) * item_bytes(recipe.spec.dtype)
    return held, largest


def computing_bytes(leaf: PlannedLeaf, block: tuple[int, ...], tile_elements: int | None) -> int:
    """Bytes in memory while a block of a leaf is computed of values that are there already."""
    of = Composition(leaf.recipe)
    if of.only_moves:
        return 0
    window = tuple(slice(0, n) for n in block)
    return _tile_bytes(window, tile_elements if of.is_divisible else None)


def _tile_bytes(window: Window, tile_elements: int | None) -> int:
    count = math.prod(window_shape(window))
    return TEMPORARY_BYTES * (min(count, tile_elements) if tile_elements else count)


def pending_bytes(leaf: PlannedLeaf, block: tuple[int, ...]) -> int:
    """Bytes that a block holds from when it is made until it is on disk: its values, and them encoded.

    Without an array document they are written as they stand, and have gone by the time that they are read back.
    """
    forms = 1 if leaf.document is None else 2
    return forms * math.prod(block) * item_bytes(leaf.spec.dtype) + LEAF_OVERHEAD_BYTES


def bytes_in_flight(
    leaf: PlannedLeaf, tile_elements: int | None, memory_bytes: int = UNBOUNDED
) -> int:
    """The least that writing a leaf holds at once: one block, or the whole leaf where an edit needs that.

    What is measured is measured before there is a block.

    ``tile_elements`` is the kit's; ``memory_bytes``: see ``Composition``.
    """
    shape = block_shape(leaf.spec, write_shape(leaf))
    made = Composition(leaf.recipe, memory_bytes)
    block = leaf.spec.shape if made.is_whole else shape
    making = _making_bytes(made, block, tile_elements) + pending_bytes(leaf, block)
    return max(making, _most_measuring_bytes(made, tile_elements))
