"""Flax msgpack files, and Orbax's old aggregate file ``checkpoint``: scanned, and read leaf by leaf.

Nothing is kept but places. Source: ``flax.serialization``, ``orbax.checkpoint.msgpack_utils``.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgpack

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray
from surgery_cli.store.files.msgpack_scan import (
    ARRAY_SPEC,
    COMPLEX,
    Scan,
    scan_file,
)
from surgery_cli.store.files.t5x import VERSION, ArraySpec, read_spec, refuse_specs, refuse_version
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec

PLACEHOLDER: Final = "PLACEHOLDER://"
"""How an aggregate file begins the text that stands for an array stored elsewhere; the array's name follows."""


class MsgpackFile:
    """A tree in one msgpack file.

    Lists of a Flax file are dicts with the keys '0', '1', …, as Flax writes them; lists of an aggregate file are
    sequences. Text that begins with ``PLACEHOLDER://`` is a leaf of kind STRING like any other text.

    Raises:
        CheckpointError: (on first use) the file is cut short, damaged or not msgpack.
    """

    def __init__(self, path: Path, *, has_arrays_beside: bool = False) -> None:
        """``has_arrays_beside``: it may refer to arrays in the folder that it stands in."""
        self.path = path
        self._has_arrays_beside = has_arrays_beside

    @cached_property
    def scan(self) -> Scan:
        """Every leaf with its place in the file."""
        try:
            found = scan_file(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None
        specs = [path for path, leaf in found.leaves.items() if leaf.code == ARRAY_SPEC]
        if specs and not self._has_arrays_beside:
            refuse_specs(self.path, specs)
        return found

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: leaf.spec for path, leaf in self.scan.leaves.items()})

    @cached_property
    def placeholders(self) -> dict[LeafPath, str]:
        """Leaves whose values stand elsewhere, with the names of their arrays."""
        names = {path: spec.name for path, spec in self.array_specs.items()}
        for path, leaf in self.scan.leaves.items():
            if leaf.spec.kind is LeafKind.STRING and leaf.code is None:
                text = str(self.read(path))
                if text.startswith(PLACEHOLDER):
                    names[path] = text.removeprefix(PLACEHOLDER)
        return names

    @cached_property
    def array_specs(self) -> dict[LeafPath, ArraySpec]:
        """Leaves whose values stand elsewhere, with the TensorStore specs that T5X has for them.

        Raises:
            CheckpointError: a spec is none that T5X writes, or the version none that it reads.
        """
        specs = [path for path, leaf in self.scan.leaves.items() if leaf.code == ARRAY_SPEC]
        if specs:
            version = self.read(VERSION) if VERSION in self.scan.leaves else None
            refuse_version(self.path, version, specs)
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
        raw = self.raw(path)
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

    def raw(self, path: LeafPath) -> bytes:
        """The bytes of a leaf as they stand in the file."""
        leaf = self.scan.leaves[path]
        return filesystem.read(self.path, leaf.start, leaf.stop - leaf.start)
