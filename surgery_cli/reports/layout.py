"""Of `inspect --layout` and `reshard`: what hosts would read to restore."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class ReadLeaf(msgspec.Struct, kw_only=True, frozen=True):
    """A leaf of which hosts read more than they need, or more than once."""

    path: str
    chunks: int
    chunk_shape: tuple[int, ...]
    partition: str
    """Over which axes of the mesh it is split; ``None`` if every host reads all of it."""
    mesh: str | UnsetType = UNSET
    """Over which mesh, where that is another than most leaves have."""
    stored_bytes: int
    read_bytes: int
    """By all hosts together."""
    again_bytes: int
    unused_bytes: int


class HostReads(msgspec.Struct, kw_only=True, frozen=True):
    """What the hosts of a mesh read to restore, in bytes of stored chunks."""

    mesh: str
    elsewhere: int | UnsetType = UNSET
    """How many leaves are spread over another mesh: who has its devices is told by their ids."""
    hosts: int
    devices_per_host: int
    chunks: int
    stored_bytes: int
    """Of all chunks, once."""
    read_bytes: int
    """By all hosts together."""
    most_bytes: int
    """By the host that reads most."""
    least_bytes: int
    again_bytes: int
    """Read by more than one host, beyond the first."""
    unused_bytes: int
    """Read for nothing: a part of a chunk costs all of it."""
    is_estimate: bool
    """True if sizes of chunks are told from others: they are not written yet, or stand in the index of a shard."""
    wasteful: int
    """Leaves of which something is read for nothing, or again."""
    worst: list[ReadLeaf]
    """At most ten of these: those of which most is read for nothing, then those that are read again most."""


class Resharded(msgspec.Struct, kw_only=True, frozen=True):
    """What `reshard` does: how many leaves get other chunks, another sharding only, or neither."""

    rewritten: int
    relabelled: int
    as_they_are: int
    replicated: int
    """Arrays that every device has whole."""
    before: HostReads | None = None
    """What hosts would read of the source, for the sharding that is asked for."""
    after: HostReads | None = None
