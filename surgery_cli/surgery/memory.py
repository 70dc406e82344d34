"""Whether a plan can be carried out in the memory that it may use, told from metadata alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import Made, parts, stored_in
from surgery_cli.engine.decoding import decoded_too_often, needed_bytes
from surgery_cli.engine.forecast import bytes_in_flight
from surgery_cli.engine.grid import BLOCK_BYTES
from surgery_cli.errors import CheckpointError
from surgery_cli.store.filesystem.memory_limits import room
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.ocdbt import copying_bytes
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.quantities import byte_text

_MOST_NAMED: Final = 3

_ALWAYS_TRIED_BYTES: Final = 128 << 20
"""What needs no more than this is not refused by a look at the machine, and no budget is cut to less."""


class Need(NamedTuple):
    """The most bytes that a single leaf takes at once, and the leaf; None if nothing passes through memory."""

    bytes: int
    leaf: PlannedLeaf | None


def check_memory(need: Need) -> None:
    """Refuse what this process has no memory for, before any of it is asked for.

    Raises:
        CheckpointError: a leaf, or a stored chunk of one, is declared larger than the memory that can be had.
    """
    needed, leaf = need
    if leaf is None or needed <= _ALWAYS_TRIED_BYTES:
        return
    there = room()
    if needed > there.bytes:
        raise CheckpointError(
            f"'{leaf.draft_path}' does not fit into memory",
            why=f"{leaf.spec.type_text} takes about {byte_text(needed)} at once, {byte_text(there.bytes)}"
            f" {there.bound}: {_why_at_once(leaf)}",
            fix="run where there is more memory; if that size is not meant, the metadata is damaged",
        )


def bytes_to_use(memory_bytes: int) -> int:
    """How much may be in flight: what `--memory` allows, and not more than this process can have."""
    return min(memory_bytes, max(room().bytes, _ALWAYS_TRIED_BYTES))


def memory_notes(need: Need, memory_bytes: int) -> list[Consequence]:
    """Where the budget cannot be kept: which leaf takes how much, and why."""
    needed, leaf = need
    if leaf is None or needed <= memory_bytes:
        return []
    sentence = (
        f"'{leaf.draft_path}' takes about {byte_text(needed)} at once, more than `--memory` allows"
    )
    return [Consequence(f"{sentence}: {_why_at_once(leaf)}; the run goes on with that much")]


def decoding_notes(plans: Mapping[str, ItemPlan], memory_bytes: int) -> list[Remark]:
    """A note where stored chunks are decoded again and again, as their elements go to places far apart."""
    found = {
        leaf.draft_path: (times, needed_bytes(leaf))
        for plan in plans.values()
        for leaf in plan.computed
        if (times := decoded_too_often(leaf)) and needed_bytes(leaf) > memory_bytes
    }
    if not found:
        return []
    paths = quoted(list(map(str, found)), _MOST_NAMED)
    times, needed = map(max, zip(*found.values(), strict=True))
    return [
        Remark(
            f"the stored chunks of {paths} are decoded up to {times:,} times, as their elements go to places far"
            f" apart: with `--memory {-(-needed // (1 << 20))}MiB` they are read once"
        )
    ]


def most_at_once(plans: Mapping[str, ItemPlan], compact: Mapping[str, bool], device: str) -> Need:
    """What the leaf takes that takes most; ``compact`` says which items are."""
    tile = HostKit.tile_elements if device == "host" else None
    most = Need(0, None)
    for name, plan in plans.items():
        needs = [(leaf, bytes_in_flight(leaf, tile)) for leaf in plan.computed]
        copied = copied_leaves(plan, compact=compact[name])
        needs += [(leaf, copying_bytes(leaf)) for leaf in copied]
        for leaf, needed in needs:
            if needed > most.bytes:
                most = Need(needed, leaf)
    return most


def _why_at_once(leaf: PlannedLeaf) -> str:
    """Why a leaf takes what it takes, in a sentence."""
    if leaf.way is not Way.ENCODE:
        return "it is copied as it is stored, one chunk at a time"
    for part in parts(leaf.output.recipe):
        if isinstance(part, Made) and part.kernel.is_whole:
            return f"`{part.kernel.name}` needs the whole leaf at once"
    stored, chunk = max(_chunks(leaf), key=lambda pair: pair[1])
    if chunk <= BLOCK_BYTES:
        return f"the least that is worked on is a block of {byte_text(min(BLOCK_BYTES, leaf.spec.bytes))}"
    if chunk >= stored.bytes:
        return (
            f"it is stored in one chunk of {byte_text(chunk)}, which is decoded and written whole"
        )
    return f"it is stored in chunks of {byte_text(chunk)}, which are decoded and written whole"


def _chunks(leaf: PlannedLeaf) -> Iterator[tuple[LeafSpec, int]]:
    """What is read and written for a leaf, each with the bytes of its chunks."""
    read = [leaf.output.spec]
    read += [part.spec for part in stored_in(leaf.output.recipe)]
    for spec in read:
        yield spec, _bytes_of(spec.chunk_shape, spec)
    yield leaf.spec, _bytes_of(write_shape(leaf), leaf.spec)


def _bytes_of(chunk: tuple[int, ...] | None, spec: LeafSpec) -> int:
    """Bytes of a stored chunk; those beyond the leaf's end are decoded as well."""
    return math.prod(chunk) * item_bytes(spec.dtype) if chunk is not None else 0
