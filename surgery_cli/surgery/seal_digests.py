"""What a seal puts on record: digests of all leaves and files, and of large ones those of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from surgery_cli.draft.expression import stored_in
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, digest_and_blocks, digest_reading
from surgery_cli.engine.progress import Meter
from surgery_cli.errors import CheckpointError
from surgery_cli.proof.files import PIECE_BYTES, digest_with_pieces, of_each_file
from surgery_cli.proof.record_parts import FileBlocks
from surgery_cli.proof.record_places import record_key
from surgery_cli.script.user_code import Say
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.look_memory import Look, Looks, planned_looks
from surgery_cli.tree.paths import LeafPath


class LeafDigests(NamedTuple):
    """By record key: of all leaves that were read, and of the blocks of those that have several."""

    digests: dict[str, LeafDigest]
    blocks: dict[str, str]


class FileHashes(NamedTuple):
    """By file: of all, and of the pieces of large ones."""

    digests: dict[str, str]
    blocks: dict[str, FileBlocks]


class Recorded(NamedTuple):
    """How leaves are read to be digested, and over which grids: those on record where there are any."""

    looks: Looks[Reading]
    grids: Mapping[LeafPath, tuple[int, ...] | None]


def planned(
    checkpoint: Checkpoint,
    known: Mapping[str, LeafDigest],
    memory_bytes: int,
    say: Say,
    paths: Sequence[LeafPath] | None = None,
) -> Recorded:
    """How the leaves, or those of ``paths``, are read."""
    tree = checkpoint.tree
    chosen = list(tree) if paths is None else list(paths)
    checkpoint.expect(chosen)

    def grid_of(path: LeafPath) -> tuple[int, ...] | None:
        expected = known.get(record_key(checkpoint, path))
        has_grid = expected is not None and len(expected.grid) == len(tree[path].shape)
        return expected.grid if expected is not None and expected.grid and has_grid else None

    grids = {path: grid_of(path) for path in chosen}
    looks = {
        path: Look(str(path), (tree[path],), partial(digest_reading, tree[path], grid=grid))
        for path, grid in grids.items()
    }
    return Recorded(planned_looks(looks, memory_bytes, say), grids)


def digested_leaves(checkpoint: Checkpoint, recorded: Recorded, meter: Meter) -> LeafDigests:
    """Read leaves, several at once.

    Raises:
        CheckpointError: one of them cannot be read; its problems have its path.
    """
    tree, (looks, grids) = checkpoint.tree, recorded

    def digest_of(path: LeafPath) -> tuple[LeafDigest, tuple[bytes, ...]]:
        try:
            return digest_and_blocks(
                checkpoint, path, tree[path], looks.readings[path], grids[path]
            )
        except CheckpointError as error:
            error.problems = tuple(replace(p, path=str(path)) for p in error.problems)
            raise

    found = LeafDigests({}, {})
    every = in_order(digest_of, looks.costs, looks.limit_bytes)
    for path, (digest, blocks) in zip(grids, every, strict=True):
        key = record_key(checkpoint, path)
        found.digests[key] = digest
        if len(blocks) > 1:
            found.blocks[key] = b"".join(blocks).hex()
        meter.advance(tree[path].bytes, str(path))
    return found


def check_readable(
    draft: Draft, sources: Mapping[str, Any], path: LeafPath, memory_bytes: int
) -> None:
    """Read what a leaf of a result takes as it is stored, where that stands in the sources.

    Raises:
        CheckpointError: it cannot be read there either.
    """
    for stored in stored_in(draft.leaves[path].recipe):
        source = sources[stored.ref.source]
        if isinstance(source, Checkpoint):
            reading = digest_reading(stored.spec, memory_bytes)
            digest_and_blocks(source, stored.ref.path, stored.spec, reading)


def hashed_files(files: Mapping[str, Path], meter: Meter) -> FileHashes:
    """Read files, several at once.

    Raises:
        CheckpointError: one of them cannot be read.
    """
    found = FileHashes({}, {})
    for key, one in of_each_file(digest_with_pieces, files, meter.advance).items():
        if isinstance(one, CheckpointError):
            raise one
        found.digests[key] = one.digest
        if one.pieces:
            found.blocks[key] = FileBlocks(one.size, PIECE_BYTES, b"".join(one.pieces).hex())
    return found
