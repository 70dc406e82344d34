"""What is left of files that break off: msgpack, safetensors and npz, as far as what they say of leaves is there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from surgery_cli.salvage.file_leaf import FileLeaf, FileLeaves
from surgery_cli.salvage.npz_leaves import npz_leaves
from surgery_cli.salvage.states import Assumption
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_break import scan_before_break
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.safetensors import declared, spec_of
from surgery_cli.store.locate.file_formats import FileFormat


def file_leaves(path: Path, form: FileFormat) -> FileLeaves:
    """What a file declares, and which of it is there.

    Raises:
        CheckpointError: not even its begin can be read.
    """
    match form:
        case FileFormat.SAFETENSORS:
            return _of_safetensors(path)
        case FileFormat.FLAX:
            return _of_msgpack(path)
        case _:
            return npz_leaves(path)


def _of_safetensors(path: Path) -> FileLeaves:
    """The header says where every tensor stands."""
    arrays, size = declared(path), filesystem.size(path)
    segments = {name: array.segments[0] for name, array in arrays.items()}
    needed = max((one.offset + one.length for one in segments.values()), default=size)
    assumes, fault = _of_sizes(needed, size)
    found = {}
    for name, array in arrays.items():
        length = segments[name].length
        there = max(size - segments[name].offset, 0)
        found[name] = (
            FileLeaf(spec_of(array), array.read, assumes=assumes)
            if there >= length
            else FileLeaf(spec_of(array), None, f"{there} of its {length} bytes are there")
        )
    return FileLeaves(found, fault, True)


def _of_sizes(needed: int, size: int) -> tuple[Assumption | None, str]:
    """What is assumed of a file that should have other many bytes, and what is wrong with it."""
    if size > needed:
        fault = f"its tensors need {needed} bytes, and it has {size}"
        return "bytes were added at its end alone", fault
    if size < needed:
        return "bytes are missing at its end alone", f"it breaks off after {size} bytes"
    return None, ""


def _of_msgpack(path: Path) -> FileLeaves:
    """Leaves stand one after the other: those on either side of the first place that is not as it was written."""
    scan, behind, lost, why = scan_before_break(path)
    source = MsgpackFile(path, known=scan)
    found = {}
    for name, spec in source.tree.items():
        assumes: Assumption | None = None
        if name in behind:
            assumes = "what stands behind the damage has its own names"
        elif why:
            assumes = "nothing before the damage is displaced"
        found[name] = FileLeaf(spec, partial(source.read, name), assumes=assumes)
    found |= {name: FileLeaf(None, None, reason) for name, reason in lost.items()}
    return FileLeaves(found, why, not why, source)
