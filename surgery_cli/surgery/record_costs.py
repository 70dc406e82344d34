"""What a run reads beside what it needs, to hold leaves of which it needs values against their digests on record."""

from __future__ import annotations

from collections.abc import Iterator

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.bands import bands_of
from surgery_cli.engine.bounded_reads import met_by
from surgery_cli.engine.decoding import is_read_once
from surgery_cli.engine.forecast import blocks_of
from surgery_cli.engine.grid import block_bytes, windows
from surgery_cli.engine.recorded_blocks import RecordedBlocks
from surgery_cli.engine.sights import judged_reads
from surgery_cli.proof.records import recorded_in
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.surgery.preparation import Prepared


def bytes_to_check(prepared: Prepared, memory_bytes: int) -> int:
    """Bytes of values: of blocks on record of which only a part is needed, as ``CheckedSource`` reads them."""
    recorded = recorded_in(prepared.sources)
    known: dict[LeafRef, RecordedBlocks | None] = {}
    total = 0
    for stored, window in _reads(prepared, memory_bytes) if recorded else ():
        ref, spec = stored.ref, stored.spec
        if ref not in known:
            found = recorded[ref.source].digest_of(ref.path) if ref.source in recorded else None
            grid = spec.shape if found is None else found.grid or spec.shape
            is_like = spec.has_array and len(grid) == len(spec.shape)
            known[ref] = None if found is None or not is_like else RecordedBlocks(spec, grid)
        blocks = known[ref]
        if blocks is not None:
            around = blocks.decoded_with(window)
            if around is not None:
                total += block_bytes(spec, around) - block_bytes(spec, window)
            list(blocks.begun(around or window))
    return total + sum(one.missing_bytes(memory_bytes) for one in known.values() if one is not None)


def _reads(prepared: Prepared, memory_bytes: int) -> Iterator[tuple[Stored, Window]]:
    """What is read of stored leaves, in the order in which that is asked for."""
    every = [leaf for plan in prepared.plans.values() for leaf in (*plan.computed, *plan.packed)]
    whole = [leaf for leaf in every if leaf.is_read_whole]
    for one in judged_reads(prepared.draft.checks, whole, memory_bytes):
        yield from one.reads()
    for leaf in every:
        yield from _read_for(leaf, memory_bytes)


def _read_for(leaf: PlannedLeaf, memory_bytes: int) -> Iterator[tuple[Stored, Window]]:
    bands = bands_of(leaf, memory_bytes, HostKit.tile_elements)
    blocks = blocks_of(leaf) if bands is None else windows(leaf.spec.shape, bands.shape)
    is_once = is_read_once(leaf, memory_bytes)
    for part, window in (read for block in blocks for read in reads(leaf.recipe, block)):
        if is_once:
            yield part, tuple(slice(0, n) for n in part.spec.shape)
        elif bands is not None:
            pieces = met_by(window, part.spec.chunk_shape or part.spec.shape)
            yield from ((part, piece) for piece in pieces)
        else:
            yield part, window
