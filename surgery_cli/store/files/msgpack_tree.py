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
from surgery_cli.store.files.msgpack_scan import (
    COMPLEX,
    Scan,
    scan_file,
)
from surgery_cli.store.files.t5x import refuse_array_specs
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
        CheckpointError: (on first use) the file is cut short, damaged, not msgpack, or a T5X checkpoint's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def scan(self) -> Scan:
        """Every leaf with its place in the file."""
        try:
            found = scan_file(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None
        refuse_array_specs(self.path, found.leaves)
        return found

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: leaf.spec for path, leaf in self.scan.leaves.items()})

    @cached_property
    def placeholders(self) -> dict[LeafPath, str]:
        """Leaves whose values stand elsewhere, with the names of their arrays."""
        texts = (p for p, leaf in self.scan.leaves.items() if leaf.spec.kind is LeafKind.STRING)
        found = {path: str(self.read(path)) for path in texts}
        return {
            path: text.removeprefix(PLACEHOLDER)
            for path, text in found.items()
            if text.startswith(PLACEHOLDER)
        }

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
