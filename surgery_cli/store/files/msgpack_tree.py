"""Flax msgpack files, and Orbax's old aggregate file ``checkpoint``: scanned, and read leaf by leaf.

Nothing is kept but places. Source: ``flax.serialization``, ``orbax.checkpoint.msgpack_utils``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import msgpack
import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray
from surgery_cli.store.files.msgpack_scan import (
    ARRAY_SPEC,
    COMPLEX,
    PackedLeaf,
    Scan,
    scan_file,
)
from surgery_cli.store.files.t5x import (
    READ_VERSIONS,
    VERSION,
    ArraySpec,
    envelope,
    is_t5x,
    read_spec,
    refuse_specs,
    refuse_version,
)
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec

PLACEHOLDER: Final = "PLACEHOLDER://"
"""How an aggregate file begins the text that stands for an array stored elsewhere; the array's name follows."""


class PackedSource(Protocol):
    """What a new file takes leaves and kinds of containers from, and what stands before its tree."""

    @property
    def path(self) -> Path: ...
    @property
    def scan(self) -> Scan: ...
    @property
    def envelope(self) -> bytes: ...


class NewMsgpack(msgspec.Struct, frozen=True):
    """In the place of a source for a file of which nothing is there yet."""

    envelope: bytes
    path: Path = Path()

    @property
    def scan(self) -> Scan:
        return Scan({}, set(), set(), [])


class MsgpackFile:
    """A tree in one msgpack file.

    Lists of a Flax file are dicts with the keys '0', '1', …, as Flax writes them; lists of an aggregate file are
    sequences. Text that begins with ``PLACEHOLDER://`` is a leaf of kind STRING like any other text.

    Raises:
        CheckpointError: (on first use) the file is cut short, damaged or not msgpack.
    """

    def __init__(
        self, path: Path, *, has_arrays_beside: bool = False, known: Scan | None = None
    ) -> None:
        """``has_arrays_beside``: it may refer to arrays in the folder that it stands in. ``known``: its leaves, as far
        as they can be read.
        """
        self._known = known
        self.path = path
        self._has_arrays_beside = has_arrays_beside

    @cached_property
    def _whole(self) -> Scan:
        """Every leaf with its place in the file, under all keys that stand there."""
        if self._known is not None:
            return self._known
        try:
            return scan_file(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None

    @cached_property
    def t5x_version(self) -> int | None:
        """Which version of T5X's format it is; None if it is another's.

        Raises:
            CheckpointError: it has TensorStore specs, and is none that T5X reads.
        """
        leaves = self._whole.leaves
        specs = [path for path, leaf in leaves.items() if leaf.code == ARRAY_SPEC]
        version = leaves.get(VERSION)
        if not self._has_arrays_beside or not is_t5x(leaves):
            refuse_specs(self.path, specs)
            return None
        assert version is not None
        number = self._decoded(VERSION, version)
        if not specs and (number not in READ_VERSIONS or self._texts_of_places(leaves)):
            return None  # whoever else calls his parts so
        refuse_version(self.path, number)
        return int(number)

    @cached_property
    def scan(self) -> Scan:
        """Every leaf with its place in the file; of T5X, below what stands around the tree."""
        whole = self._whole
        if self.t5x_version is None:
            return whole
        leaves = {LeafPath(p[1:]): leaf for p, leaf in whole.leaves.items() if p != VERSION}
        tuples, integers = (
            {LeafPath(p[1:]) for p in found} for found in (whole.tuples, whole.integer_keys)
        )
        return Scan(leaves, tuples, integers, whole.oddities)

    @property
    def envelope(self) -> bytes:
        """What stands before the tree in the file."""
        return b"" if self.t5x_version is None else envelope(self.t5x_version)

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: leaf.spec for path, leaf in self.scan.leaves.items()})

    @cached_property
    def placeholders(self) -> dict[LeafPath, str]:
        """Leaves whose values stand elsewhere, with the names of their arrays."""
        if self.t5x_version is not None:
            return {path: spec.name for path, spec in self.array_specs.items()}
        return self._texts_of_places(self.scan.leaves)

    def _texts_of_places(self, leaves: Mapping[LeafPath, PackedLeaf]) -> dict[LeafPath, str]:
        texts = ((p, leaf) for p, leaf in leaves.items() if leaf.spec.kind is LeafKind.STRING)
        found = {p: str(self._decoded(p, leaf)) for p, leaf in texts if leaf.code is None}
        return {
            path: text.removeprefix(PLACEHOLDER)
            for path, text in found.items()
            if text.startswith(PLACEHOLDER)
        }

    @cached_property
    def array_specs(self) -> dict[LeafPath, ArraySpec]:
        """Leaves whose values stand elsewhere, with the TensorStore specs that T5X has for them.

        Raises:
            CheckpointError: a spec is none that T5X writes.
        """
        specs = [path for path, leaf in self.scan.leaves.items() if leaf.code == ARRAY_SPEC]
        return {path: read_spec(self.path, path, self.read(path)) for path in specs}

    def place_of(self, path: LeafPath) -> ContiguousArray | None:
        """Where an array's values stand."""
        return self.scan.leaves[path].array

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf's value: an array (0-d for NumPy scalars), a Python number, text, or None for empties.

        ``window`` cuts a block out of an array; no more than the block, and some rows, is held.

        Raises:
            KeyError: there is no such leaf.
            CheckpointError: the value does not decode.
        """
        leaf = self.scan.leaves[path]
        if leaf.array is not None:
            return leaf.array.read(window)
        if leaf.spec.kind is LeafKind.EMPTY:
            return None
        return self._decoded(path, leaf)

    def _decoded(self, path: LeafPath, leaf: PackedLeaf) -> Any:
        """What is packed at a leaf's place."""
        raw = filesystem.read(self.path, leaf.start, leaf.stop - leaf.start)
        try:
            value = msgpack.unpackb(raw, raw=False, strict_map_key=False)
            if leaf.code == COMPLEX:
                real, imaginary = msgpack.unpackb(value.data)
                return complex(real, imaginary)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CheckpointError(
                f"the leaf '{path}' in '{self.path}' does not decode",
                why=str(error)[:200],
                fix="the file is damaged; copy it again from where it was whole",
            ) from None
        return value
