"""A leaf that a file of leaves declares, and all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from surgery_cli.salvage.states import Assumption
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class FileLeaf(NamedTuple):
    """A leaf that a file declares: its values if all of their bytes are there, else the ``why``."""

    spec: LeafSpec | None
    read: Callable[[Window | None], Any] | None
    why: str = ""
    has_checksum: bool = False
    assumes: Assumption | None = None
    """What must be so for values without a checksum to be those that were saved, as bytes are lost or were added."""


class FileLeaves(NamedTuple):
    """The leaves of a file that may break off; ``fault`` is what is wrong with it, '' if nothing is."""

    leaves: dict[LeafPath, FileLeaf]
    fault: str
    are_all_named: bool
    """True if no leaf can be missing here."""
    source: MsgpackFile | None = None
    """Of msgpack, the leaves that are there."""
