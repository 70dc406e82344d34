"""The file ``checkpoint`` of older releases: the tree, with the values that are no arrays of their own."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.salvage.file_leaf import FileLeaf
from surgery_cli.salvage.states import Assumption
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_break import scan_before_break
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.filesystem.listing import is_array_folder, starts_as_msgpack
from surgery_cli.store.orbax.sidecars import AGGREGATE, Entry, value_type
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind

_BEFORE: Final[Assumption] = "nothing before the damage is displaced"
_BEHIND: Final[Assumption] = "what stands behind the damage has its own names"


class Aggregate(NamedTuple):
    """What is left of the file: ``values`` that stand in it, and where arrays of their own are.

    ``fault`` is what is wrong with it, '' if nothing is.
    """

    source: MsgpackFile
    values: dict[LeafPath, FileLeaf]
    arrays: frozenset[LeafPath]
    fault: str

    def entries(self, array_type: str) -> dict[LeafPath, Entry]:
        """Its leaves, as ``_METADATA`` would call them; ``array_type`` is what it would call arrays."""
        found: dict[LeafPath, Entry] = {}
        for path, leaf in self.values.items():
            name = array_type if leaf.spec is None else value_type(leaf.spec)
            is_empty = leaf.spec is not None and leaf.spec.kind is LeafKind.EMPTY
            found[path] = {"value_type": name, "skip_deserialize": is_empty}
        entry = {"value_type": array_type, "skip_deserialize": False}
        return found | dict.fromkeys(self.arrays, entry)


def is_aggregate(file: Path) -> bool:
    """True if a file begins as ``checkpoint`` does; other programs call theirs so, too."""
    return filesystem.is_file(file) and starts_as_msgpack(file)


def _damaged_places(item: Path, source: MsgpackFile) -> dict[LeafPath, str]:
    """Texts that stand where an array has a folder of its own: each referred to it."""
    texts = (p for p, leaf in source.scan.leaves.items() if leaf.spec.kind is LeafKind.STRING)
    names = {path: stored_name(path) for path in texts if path not in source.placeholders}
    return {path: name for path, name in names.items() if is_array_folder(item / name)}


def aggregate_of(item: Path, faults: dict[str, str]) -> Aggregate | None:
    """The file of an item; None if it has none that Orbax wrote. What is wrong with it goes into ``faults``."""
    file = item / AGGREGATE
    if not is_aggregate(file):
        return None
    try:
        scan, behind, lost, fault = scan_before_break(file)
        source = MsgpackFile(file, has_arrays_beside=True, known=scan)
        if source.t5x_version is not None:  # what it says of arrays are specs of TensorStore
            return None
        places = source.placeholders | _damaged_places(item, source)
    except UnseenError:
        raise
    except CheckpointError as error:
        faults[AGGREGATE] = error.problems[0].why
        return None
    if len(places) > len(source.placeholders):
        faults[AGGREGATE] = "it has texts where it should refer to arrays"
    if fault:
        faults[AGGREGATE] = fault
    values = {
        path: FileLeaf(None, None, why) for path, why in lost.items() if _is_leaf(path, scan.leaves)
    }
    for path, leaf in scan.leaves.items():
        if path not in places:
            assumes = (_BEHIND if path in behind else _BEFORE) if fault else None
            values[path] = FileLeaf(leaf.spec, partial(source.read, path), assumes=assumes)
    return Aggregate(source, values, frozenset(places), fault)


def _is_leaf(path: LeafPath, leaves: Collection[LeafPath]) -> bool:
    """False for a node in which a file breaks off: the name of what was lost there is lost, too."""
    return bool(path) and not any(leaf.is_below(path) for leaf in leaves)
