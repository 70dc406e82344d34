"""Everything that is left of a broken checkpoint, leaf by leaf, with what proves it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError
from surgery_cli.proof.surgery_json import Record, decoded
from surgery_cli.salvage.item import BrokenItem, digest_of
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, METADATA, SHARDING, Entry
from surgery_cli.store.write.step import RECORD
from surgery_cli.tree.paths import LeafPath

SIDECARS: Final = (METADATA, SHARDING, f"{ARRAY_METADATAS}/")
"""Files beside the arrays that a rescue goes by, by the begin of their names."""

_PROOFS: Final = {True: "checksum", False: "decodes"}


class Survey(msgspec.Struct, frozen=True):
    """What was found, by item: every leaf, and the digests of those that are whole."""

    place: BrokenPlace
    items: dict[str, BrokenItem]
    leaves: dict[str, dict[LeafPath, SavedLeaf]]
    digests: dict[str, dict[LeafPath, LeafDigest]]
    proofs: dict[LeafPath, str]
    """Of what is whole, by the path in the whole tree."""
    lost: dict[str, str]
    """Items of which nothing is left, and why that is known."""

    def path(self, item: str, inner: LeafPath) -> LeafPath:
        """A leaf's path in the whole tree."""
        return LeafPath((item, *inner)) if _has_several(self.place) else inner


def _has_several(place: BrokenPlace) -> bool:
    """True if the step has, or had, several items: their names are the first keys of all paths then."""
    return len(place.items) + len(place.lost) > 1


def survey(
    place: BrokenPlace, like: Checkpoint | None, memory_bytes: int, listener: Listener | None
) -> Survey:
    """Read every byte of what is left; ``like`` gives the structure where the metadata is lost."""
    items: dict[str, BrokenItem] = {}
    leaves: dict[str, dict[LeafPath, SavedLeaf]] = {}
    digests: dict[str, dict[LeafPath, LeafDigest]] = {}
    proofs: dict[LeafPath, str] = {}
    record = _record_of(place)
    recorded = {} if record is None else record.digests
    several = _has_several(place)
    for name, folder in place.items.items():
        distrusted = _not_as_sealed(place, folder, record)
        item = items[name] = BrokenItem(folder, _entries_like(like, name), distrusted=distrusted)
        meter = Meter(listener, "reading", sum(map(_size, item.arrays.values())))
        leaves[name], digests[name] = {}, {}
        for inner, (found, digest) in item.leaves(memory_bytes, meter.advance).items():
            path = LeafPath((name, *inner)) if several else inner
            known = recorded.get(path.spelling) or recorded.get(inner.spelling)
            leaf = found
            if digest is not None and known is not None and found.array is not None:
                leaf = _held_against(found, known, memory_bytes)
            leaves[name][inner] = leaf
            if leaf.state == "whole" and digest is not None and leaf.array is not None:
                digests[name][inner] = digest
                proofs[path] = "digest" if known is not None else _PROOFS[leaf.array.is_proven]
    nothing = "nothing of its leaves is left"
    empty = {
        name or "all": nothing
        for name, item in items.items()
        if not leaves[name] and (item.structure.origin != "metadata" or item.structure.faults)
    }
    return Survey(place, items, leaves, digests, proofs, {**place.lost, **empty})


def _size(array: Any) -> int:
    return sum(len(held.value) for held in array.chunks.values())


def _record_of(place: BrokenPlace) -> Record | None:
    """The record that the broken checkpoint carries, if it is as it was written."""
    file = place.root / RECORD
    try:
        return decoded(filesystem.read(file), file) if filesystem.is_file(file) else None
    except CheckpointError:
        return None


def _not_as_sealed(place: BrokenPlace, folder: Path, record: Record | None) -> frozenset[str]:
    """The small files of an item that are there, and are not what was sealed."""
    found = set()
    for name, digest in ({} if record is None else record.files).items():
        file = place.root / name
        if not filesystem.is_file(file) or folder not in file.parents:
            continue
        inside = str(file.relative_to(folder))
        if inside.startswith(SIDECARS):
            with filesystem.reader(file) as stream:
                if not digest.endswith(hashlib.file_digest(stream, "sha256").hexdigest()):
                    found.add(inside)
    return frozenset(found)


def _held_against(leaf: SavedLeaf, known: LeafDigest, memory_bytes: int) -> SavedLeaf:
    """The leaf, lost if its values are not those on record."""
    assert leaf.array is not None
    found = digest_of(leaf.array, leaf.path, known.grid, memory_bytes)
    if found == known:
        return leaf
    why = "it decodes, and its values are not those of the digest on record"
    return msgspec.structs.replace(leaf, state="lost", share=0.0, why=why)


def _entries_like(like: Checkpoint | None, name: str) -> dict[LeafPath, Entry]:
    """What the metadata of another checkpoint say of the leaves of an item."""
    item = None if like is None else like.items.get(name)
    if like is not None and item is None and len(like.items) == 1:
        item = next(iter(like.items.values()))
    if not isinstance(item, PytreeItem):
        return {}
    return dict(item.sidecars.values or {})
