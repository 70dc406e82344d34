"""Which requests it takes to copy stored values as they are, from a store of one layout into one of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.object_files import ASKED_AT_ONCE
from surgery_cli.store.filesystem.read_ahead import KEPT_BYTES
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES
from surgery_cli.store.write.chunk_references import Taken
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.raw_copies import batches
from surgery_cli.surgery.request_tally import PIECE_BYTES, Tally, parts


def add_copied(
    tally: Tally, leaves: Sequence[PlannedLeaf], *, buffered: bool, is_followed: bool
) -> None:
    """Into a database: they are held against where they came from, value by value.

    In memory, before they are sent; where they are not put together there, once they are.

    Where the tree holds all of them itself, the nodes that come with what follows are in the place of theirs.
    """
    taken = [one for leaf in leaves for one in leaf.taken]
    in_files = {one.store.directory for one in taken if not one.array.values}
    total = 0
    for place, sizes in _sizes_by_place(taken).items():
        large = [size for size in sizes if size >= PIECE_BYTES]
        count, small = sum(sizes), sum(sizes) - sum(large)
        pieces = sum(map(parts, large))
        if place in in_files:  # of a database, neighbours were said to come together
            tally.read(place, len(sizes) - len(large), small)
        tally.read(place, sum(-(-size // ASKED_AT_ONCE) for size in large), sum(large))
        total += count
        if buffered:
            continue
        is_kept = small <= KEPT_BYTES  # since it was copied
        tally.read(place, pieces + (0 if is_kept else parts(small)), count - is_kept * small)
        tally.read_back(pieces + parts(small), count)
    count = sum(1 for _ in batches(leaves))
    if buffered:
        tally.read_back(count)  # of a node of the one before
    stay = not is_followed or any(_sizes(one) for one in taken)
    tally.write(count if buffered else 2 * count, total, objects=count if stay else 0)


def add_copied_to_files(tally: Tally, leaves: Sequence[PlannedLeaf]) -> None:
    """Into a file for each value; once all are there, both sides are read, piece by piece, and held against each other.

    Small ones are still here of the source, since they were copied.
    """
    taken = [one for leaf in leaves for one in leaf.taken]
    for place, sizes in _sizes_by_place(taken).items():
        large = [size for size in sizes if size >= PIECE_BYTES]
        small = sum(sizes) - sum(large)
        is_kept = small <= KEPT_BYTES
        again = 0 if is_kept else small
        tally.read(place, 2 * sum(map(parts, large)) + parts(again), 2 * sum(large) + again)
    for one in taken:
        for key, value in one.store.stored_values(one.array.name).items():
            tally.write_file(len(value))
            if key not in DOCUMENT_NAMES.values():  # which are read as the result is opened
                tally.read_back(parts(len(value)), len(value))


def _sizes_by_place(taken: Sequence[Taken]) -> dict[Path, list[int]]:
    """How large the values are that are taken from each place."""
    found: dict[Path, list[int]] = {}
    for one in taken:
        found.setdefault(one.store.directory, []).extend(_sizes(one))
    return found


def _sizes(taken: Taken) -> list[int]:
    """How large the values are that are read to be taken; what says how they are stored was read before."""
    array = taken.array
    if array.values:
        return [extent.length for extent in array.extents]
    folder = taken.store.directory / array.name
    chunks = [key for key in array.keys if key not in DOCUMENT_NAMES.values()]
    return [filesystem.size(folder / key) for key in chunks]
