"""What of a checkpoint is read to check it: everything, or a sample of leaves and files, large ones in parts."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from surgery_cli import reports
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.digests import digest_of_blocks
from surgery_cli.engine.grid import block_bytes, windows
from surgery_cli.settings.sample import Sample
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.expected_digests import Expected
from surgery_cli.tree.paths import LeafPath

Of = TypeVar("Of")

Parts: TypeAlias = list[int] | None
"""Which blocks of a leaf, or pieces of a file; None for all of it, as one."""

DIGEST_BYTES = 32


class Unit(NamedTuple):
    """The least that is checked by itself: a leaf or file, or the ``part`` of one."""

    leaf: LeafPath | None
    file: str
    part: int | None
    bytes: int


class Chosen(msgspec.Struct, frozen=True):
    """The leaves and files that are read, and what share of all that is."""

    leaves: Mapping[LeafPath, Parts]
    files: Mapping[str, Parts]
    whole_files: AbstractSet[str]
    """Of the files, those of which nothing is left out."""
    sampled: reports.Sampled | None = None


def everything(checkpoint: Checkpoint, files: Mapping[str, Path], expected: Expected) -> Chosen:
    """All leaves, and all files; those of which pieces are on record, in pieces."""
    pieces = {key: _pieces(key, path, expected) for key, path in files.items()}
    return Chosen(
        dict.fromkeys(checkpoint.tree),
        {key: list(range(len(sizes))) if len(sizes) > 1 else None for key, sizes in pieces.items()},
        pieces.keys(),
    )


def drawn(
    checkpoint: Checkpoint,
    files: Mapping[str, Path],
    expected: Expected,
    sample: Sample,
    seed: int | None,
) -> Chosen:
    """The part of them that a sample is; of a share at random it is the same for the same ``seed``."""
    units = [*_leaf_units(checkpoint, expected), *_file_units(files, expected)]
    if sample.share is None:
        chosen, seed = _of_turn(units, sample.turn, sample.turns), None
    else:
        seed = secrets.randbits(32) if seed is None else seed
        chosen = _of_share(units, sample, seed)
    of_leaves, of_files = _leaf_parts(chosen), _file_parts(chosen)
    all_leaves, all_files = _leaf_parts(units), _file_parts(units)
    whole_leaves = {path for path, parts in of_leaves.items() if parts == all_leaves[path]}
    whole_files = {key for key, parts in of_files.items() if parts == all_files[key]}
    sampled = reports.Sampled(
        asked=sample.text,
        seed=seed,
        bytes=sum(unit.bytes for unit in chosen),
        all_bytes=sum(unit.bytes for unit in units),
        leaves=len(whole_leaves),
        leaves_in_part=len(of_leaves) - len(whole_leaves),
        all_leaves=len(checkpoint.tree),
        files=len(whole_files),
        files_in_part=len(of_files) - len(whole_files),
        all_files=len(files),
        leaves_without_digest=sum(
            expected.key_of(path) not in expected.digests for path in checkpoint.tree
        ),
    )
    return Chosen(of_leaves, of_files, whole_files, sampled)


def blocks_of(checkpoint: Checkpoint, path: LeafPath, expected: Expected) -> Sequence[bytes]:
    """The digests of the blocks of a leaf, if they are on record and make its digest; else nothing."""
    key, spec = expected.key_of(path), checkpoint.tree[path]
    digest, raw = expected.digests.get(key), expected.leaf_blocks.get(key)
    if raw is None or digest is None or len(digest.grid) != len(spec.shape) or not spec.has_array:
        return ()
    blocks = [raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES)]
    is_made_of_them = digest_of_blocks(spec, digest.grid, blocks) == digest
    return blocks if is_made_of_them else ()


def windows_of(checkpoint: Checkpoint, path: LeafPath, expected: Expected) -> list[Window]:
    """Where the blocks of a leaf lie."""
    grid = expected.digests[expected.key_of(path)].grid
    return list(windows(checkpoint.tree[path].shape, grid))


def _leaf_units(checkpoint: Checkpoint, expected: Expected) -> Iterator[Unit]:
    for path, spec in checkpoint.tree.items():
        if len(blocks_of(checkpoint, path, expected)) < 2:
            yield Unit(path, "", None, spec.bytes)
            continue
        for part, window in enumerate(windows_of(checkpoint, path, expected)):
            yield Unit(path, "", part, block_bytes(spec, window))


def _file_units(files: Mapping[str, Path], expected: Expected) -> Iterator[Unit]:
    for key, path in files.items():
        sizes = _pieces(key, path, expected)
        for part, size in enumerate(sizes):
            yield Unit(None, key, part if len(sizes) > 1 else None, size)


def _pieces(key: str, path: Path, expected: Expected) -> list[int]:
    """The bytes of each piece of a file that has pieces on record and is as long as it was; else of the whole."""
    size = filesystem.size(path)
    known = expected.file_blocks.get(key)
    if known is None or known.bytes != size:
        return [size]
    return [min(known.piece, size - start) for start in range(0, size, known.piece)]


def _of_turn(units: Sequence[Unit], turn: int, turns: int) -> list[Unit]:
    """Lay them in a line, cut it into equal lengths, and take those whose middle lies in one of them."""
    total, before, found = sum(unit.bytes for unit in units), 0, []
    for number, unit in enumerate(units):
        middle = 2 * before + unit.bytes
        own = middle * turns // (2 * total) if total else number % turns
        if min(own, turns - 1) == turn - 1:
            found.append(unit)
        before += unit.bytes
    return found


def _of_share(units: Sequence[Unit], sample: Sample, seed: int) -> list[Unit]:
    """In random order as many as make up the share, in the order in which they stand."""
    assert sample.share is not None
    order = sorted(range(len(units)), key=lambda number: _rank(seed, number))
    wanted, count = sample.share * sum(unit.bytes for unit in units), 0
    found: set[int] = set()
    for number in order:
        if found and count >= wanted and sample.share < 1:
            break
        found.add(number)
        count += units[number].bytes
    return [unit for number, unit in enumerate(units) if number in found]


def _rank(seed: int, number: int) -> bytes:
    """Where a unit stands in the order of a seed, in every release of Python and of this program."""
    return hashlib.sha256(f"{seed}/{number}".encode()).digest()


def _leaf_parts(units: Iterable[Unit]) -> dict[LeafPath, Parts]:
    return _grouped((unit.leaf, unit.part) for unit in units if unit.leaf is not None)


def _file_parts(units: Iterable[Unit]) -> dict[str, Parts]:
    return _grouped((unit.file, unit.part) for unit in units if unit.leaf is None)


def _grouped(pairs: Iterable[tuple[Of, int | None]]) -> dict[Of, Parts]:
    found: dict[Of, Parts] = {}
    for of, part in pairs:
        parts = found.setdefault(of, None if part is None else [])
        if parts is not None and part is not None:
            parts.append(part)
    return found
