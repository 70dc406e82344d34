"""Leaves that get other chunks: several of them are made at once, so that each stored one is decoded a few times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.bounded_reads import met_by
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.decoding import decoded_too_often, is_read_once, times_decoded
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.forecast import bytes_in_flight, computing_bytes, pending_bytes
from surgery_cli.engine.grid import block_bytes, block_shape, is_inside, windows
from surgery_cli.engine.held import Band
from surgery_cli.engine.stream import Stream
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.tree.dtypes import item_bytes


class Bands(NamedTuple):
    """How a leaf is cut: into bands of whole blocks, whose stored values are in memory together.

    ``held_bytes`` of a band count against the memory, ``piece_bytes`` is what decoding one stored chunk for it takes.
    ``times`` is how often a chunk is decoded, at most, and ``mean_times`` in the mean.
    """

    shape: tuple[int, ...]
    held_bytes: int
    piece_bytes: int
    computing_bytes: int
    times: int
    mean_times: float


def bands_of(leaf: PlannedLeaf, memory_bytes: int, tile_elements: int | None) -> Bands | None:
    """The bands in which a leaf is made; None for one that is made block by block, or read whole."""
    if not _gets_other_chunks(leaf) or is_read_once(leaf, memory_bytes):
        return None
    least, is_often = bytes_in_flight(leaf, tile_elements, memory_bytes), decoded_too_often(leaf)
    if least <= memory_bytes and not is_often:
        return None
    one = _bands(leaf, block_shape(leaf.spec, write_shape(leaf)), tile_elements)
    if not is_often and not _take_less(leaf, one, least):
        return None
    room = memory_bytes - _beside(leaf, one)
    room = max(min(room, memory_bytes // 2), one.held_bytes)
    size = block_bytes(leaf.spec, tuple(slice(0, n) for n in one.shape))
    shape = block_shape(leaf.spec, one.shape, room * size // max(one.held_bytes, 1))
    found = _bands(leaf, shape, tile_elements)
    # where even one block needs more than there may be, what stands beside it must still find room
    most = max(memory_bytes - _beside(leaf, one), 0)
    return found._replace(held_bytes=min(found.held_bytes, most))


def times_chunks_read(leaf: PlannedLeaf, memory_bytes: int, tile_elements: int | None) -> float:
    """How often the stored chunks are read that a leaf is made of, in the mean."""
    bands = bands_of(leaf, memory_bytes, tile_elements)
    return times_decoded(leaf, memory_bytes) if bands is None else bands.mean_times


def least_bytes(leaf: PlannedLeaf, memory_bytes: int, tile_elements: int | None) -> int:
    """What writing a leaf holds at once, the least that it can where that is more than there may be."""
    least = bytes_in_flight(leaf, tile_elements, memory_bytes)
    if least <= memory_bytes or not _gets_other_chunks(leaf):
        return least
    one = _bands(leaf, block_shape(leaf.spec, write_shape(leaf)), tile_elements)
    return one.held_bytes + _beside(leaf, one) if _take_less(leaf, one, least) else least


def loaded(
    leaf: PlannedLeaf,
    evaluation: Evaluation,
    blocks: Sequence[Window],
    stream: Stream,
    tile_elements: int | None,
) -> Iterator[tuple[Band | None, list[Window]]]:
    """The blocks of a leaf band by band, each with what is read for it; all of them at once without bands."""
    bands = bands_of(leaf, stream.budget.limit, tile_elements)
    if bands is None:
        yield None, list(blocks)
        return
    left = list(blocks)
    for window in windows(leaf.spec.shape, bands.shape):
        inside = [block for block in left if is_inside(block, window)]
        if not inside:
            continue
        stream.hold(bands.held_bytes)
        wanted = reads(leaf.recipe, window)
        band = Band(wanted, len(inside), bands.held_bytes, bands.computing_bytes)
        loading = [
            stream.start(bands.piece_bytes, evaluation.stored.read_into, band, part, piece)
            for part, place in wanted
            for piece in met_by(place, part.spec.chunk_shape or part.spec.shape)
        ]
        for one in loading:  # every stored chunk once
            one.result()
        yield band, inside


def _gets_other_chunks(leaf: PlannedLeaf) -> bool:
    """True if blocks may be made of values that were read before, one window of each stored leaf."""
    if leaf.recipe is leaf.output.recipe or not leaf.is_read_whole:
        return False
    of = Composition(leaf.recipe)
    if of.is_whole or of.measured:
        return False
    parts = [id(part) for part, _ in reads(leaf.recipe, _all(leaf.spec.shape))]
    return len(parts) == len(set(parts))


def _bands(leaf: PlannedLeaf, shape: tuple[int, ...], tile_elements: int | None) -> Bands:
    held = piece = 0
    times: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for number, window in enumerate(windows(leaf.spec.shape, shape)):
        for part, read in reads(leaf.recipe, window):
            chunks = part.spec.chunk_shape or part.spec.shape
            held += 0 if number else block_bytes(part.spec, read)
            piece = max(piece, 2 * math.prod(chunks) * item_bytes(part.spec.dtype))
            times.update((id(part), _place(one, chunks)) for one in met_by(read, chunks))
    computing = computing_bytes(leaf, block_shape(leaf.spec, write_shape(leaf)), tile_elements)
    mean = times.total() / len(times) if times else 1.0
    return Bands(shape, held, piece, computing, max(times.values(), default=0), mean)


def _take_less(leaf: PlannedLeaf, bands: Bands, bytes_in_flight: int) -> bool:
    """True if bands of one block take less than blocks by themselves, by more than a decoded chunk.

    Else chunks may as well stay in memory: for the next block, and for leaves that are made of other parts of them.
    """
    return bands.held_bytes + _beside(leaf, bands) + bands.piece_bytes // 2 < bytes_in_flight


def _beside(leaf: PlannedLeaf, bands: Bands) -> int:
    """What is in memory beside a band: a chunk that is decoded for it, or a block of it that is written."""
    block = block_shape(leaf.spec, write_shape(leaf))
    return max(bands.piece_bytes, pending_bytes(leaf, block) + bands.computing_bytes)


def _place(piece: Window, chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Of the chunk in which a piece lies, the place in the grid."""
    return tuple(one.start // max(n, 1) for one, n in zip(piece, chunks, strict=True))


def _all(shape: tuple[int, ...]) -> Window:
    return tuple(slice(0, n) for n in shape)
