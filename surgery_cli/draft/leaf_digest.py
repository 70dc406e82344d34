"""What the digest of a leaf is taken over, and a manifest: digests of leaves, wherever they are recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from surgery_cli.tree.specs import LeafKind, TreeSpec


def sha256_of_blocks(
    dtype: str, shape: tuple[int, ...], grid: tuple[int, ...], blocks: Iterable[bytes]
) -> str:
    """``sha256:…`` over dtype, shape and grid as JSON, then the SHA-256 of each block, in C order."""
    record = hashlib.sha256(msgspec.json.encode([dtype, shape, grid]))
    for block in blocks:
        record.update(block)
    return f"sha256:{record.hexdigest()}"


def sha256_of_text(text: str | None) -> str:
    """``sha256:…`` of a string leaf or of an empty one."""
    return f"sha256:{hashlib.sha256(repr(text).encode()).hexdigest()}"


def sort_of(kind: str, type_text: str) -> str:
    """What the values of a leaf do not tell and a restore depends on: a number is no array, a key no bits.

    Whether an array is NumPy's is left out: it differs between formats that hold the same.
    """
    if kind in (LeafKind.ARRAY, LeafKind.NUMPY):
        return "an array"
    return type_text if kind in (LeafKind.KEY, LeafKind.EMPTY) else kind


class KnownLeaf(NamedTuple):
    """A digest on record; ``grid`` is empty, and ``sort`` is '', where they are not known."""

    digest: str
    grid: tuple[int, ...] = ()
    sort: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """Digests of leaves, by the unambiguous spelling of their paths.

    ``tree`` has the same leaves with their types, which are placeholders unless it ``is_typed``. ``containers`` are the
    nodes that are no dicts, None where they are not known of the manifest, or of what is held against it.
    """

    leaves: Mapping[str, KnownLeaf]
    tree: TreeSpec
    is_typed: bool
    containers: Mapping[str, str] | None = None

    @property
    def mark(self) -> str:
        """``sha256:…`` by which it is known again: of all that leaves are held against, whatever else its file says."""
        held = [
            sorted(self.leaves.items()),
            list(self.tree.items()),
            self.is_typed,
            self.containers,
        ]
        encoded = msgspec.json.encode(held, order="deterministic")
        return f"sha256:{hashlib.sha256(encoded).hexdigest()}"
