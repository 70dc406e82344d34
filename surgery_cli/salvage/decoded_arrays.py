"""Arrays of which every chunk was found and decodes: their digests, and what is said of them."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.engine.digests import LeafDigest, digest_reading, leaf_digest
from surgery_cli.salvage.leaf_states import OTHER_VALUES, lost
from surgery_cli.salvage.leaves import FoundArray, SavedLeaf
from surgery_cli.salvage.states import Proof
from surgery_cli.store.orbax.sidecars import Entry
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec


def decoded(
    path: LeafPath,
    entry: Entry,
    array: FoundArray,
    digest: LeafDigest,
    known: LeafDigest | None,
) -> SavedLeaf:
    """A leaf of which everything decodes; lost, if not to the values on record."""
    if known is not None and digest != known:
        found = lost(path, entry, OTHER_VALUES)
        return found if array.described_by else msgspec.structs.replace(found, array=array)
    proof: Proof = "checksum" if array.is_proven else "decodes"
    return SavedLeaf(
        path=path,
        entry=entry,
        state="whole",
        array=array,
        digest=digest,
        proof="digest" if known is not None else proof,
        assumes=array.assumes if known is None else None,
    )


class _Alone:
    """One array, read under whatever path."""

    def __init__(self, array: FoundArray) -> None:
        self._array = array

    def read(self, path: LeafPath, window: tuple[slice, ...] | None = None) -> Any:
        return self._array.read(window)


def digest_of(
    array: FoundArray, path: LeafPath, known: LeafDigest | None, memory_bytes: int
) -> LeafDigest:
    """The digest of an array's values, over the grid of one that is ``known`` of it, else over its own.

    Raises:
        CheckpointError: not all of it decodes.
    """
    spec = spec_of(array, LeafKind.ARRAY)
    is_alike = known is not None and len(known.grid) == len(spec.shape)
    grid = known.grid if known is not None and is_alike else None
    reading = digest_reading(spec, memory_bytes, grid)
    return leaf_digest(_Alone(array), path, spec, reading, grid)


def spec_of(array: FoundArray, kind: LeafKind) -> LeafSpec:
    """What metadata would say of the leaf."""
    document = array.document
    return LeafSpec(
        kind=kind,
        shape=document.shape,
        dtype=document.dtype,
        chunk_shape=document.chunk_shape,
        write_shape=document.write_shape,
    )
