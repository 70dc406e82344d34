"""What is said of leaves that are no stored arrays: lost ones, texts, and those with values in a file of leaves."""

from __future__ import annotations

from typing import Any, Final

from surgery_cli.engine.digests import LeafDigest, digest_of_text, digest_reading, leaf_digest
from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.salvage.file_leaf import FileLeaf
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.states import Proof
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.orbax.sidecars import Entry
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

_SAVED_SINCE: Final = "something else was saved there after its record was written"
OTHER_VALUES: Final = "it decodes, and its values are not those of the digest on record"


def lost(path: LeafPath, entry: Entry, why: str, spec: LeafSpec | None = None) -> SavedLeaf:
    """A leaf of which nothing is left."""
    return SavedLeaf(path=path, entry=entry, state="lost", share=0.0, why=why, spec=spec)


def of_text(path: LeafPath, entry: Entry, text: str | None, known: LeafDigest | None) -> SavedLeaf:
    """A leaf that is text, in a file of texts; no checksum covers it."""
    if text is None:
        return lost(path, entry, "the file with the texts does not have it")
    if known is not None and digest_of_text(text) != known:
        return lost(path, entry, OTHER_VALUES)
    proof: Proof = "decodes" if known is None else "digest"
    return SavedLeaf(path=path, entry=entry, state="whole", value=text, proof=proof)


def of_file(
    path: LeafPath,
    entry: Entry,
    leaf: FileLeaf,
    known: LeafDigest | None,
    memory_bytes: int,
    *,
    is_beside: bool = False,
) -> SavedLeaf:
    """A leaf that a file of leaves declares; its values are read.

    ``is_beside``: its digest stands beside the file, and may be of what stood there before. Values of another digest
    are damaged then, or were saved since, as they surely were where a checksum holds.
    """
    if leaf.spec is None or leaf.read is None:
        return lost(path, entry, leaf.why, leaf.spec)
    spec = leaf.spec
    assumes = None if known or leaf.has_checksum else leaf.assumes
    if spec.kind is LeafKind.EMPTY:
        return SavedLeaf(
            path=path, entry=entry, state="whole", value=spec.empty, spec=spec, assumes=assumes
        )
    try:
        text = leaf.read(None) if spec.kind is LeafKind.STRING else None
        digest = digest_of_text(text)
        if text is None:
            grid = None if known is None or len(known.grid) != len(spec.shape) else known.grid
            reading = digest_reading(spec, memory_bytes, grid)
            digest = leaf_digest(_Read(leaf), path, spec, reading, grid)
    except UnseenError:
        raise
    except CheckpointError as error:
        return lost(path, entry, error.problems[0].why, spec)
    if known is not None and digest != known:
        if not is_beside:
            return lost(path, entry, OTHER_VALUES, spec)
        known, assumes = None, None if leaf.has_checksum else leaf.assumes or _SAVED_SINCE
    return SavedLeaf(
        path=path,
        entry=entry,
        state="whole",
        value=text,
        spec=spec,
        digest=digest if text is None else None,
        proof="digest" if known else "checksum" if leaf.has_checksum else "decodes",
        assumes=assumes,
    )


class _Read:
    """One leaf, read under whatever path."""

    def __init__(self, leaf: FileLeaf) -> None:
        self._leaf = leaf

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        assert self._leaf.read is not None
        return self._leaf.read(window)
