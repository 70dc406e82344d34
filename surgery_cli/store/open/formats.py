"""The item at a path, in whichever format it is."""

from __future__ import annotations

from pathlib import Path

from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.safetensors import SafetensorsFile
from surgery_cli.store.files.torch_file import TorchFile
from surgery_cli.store.locate.file_formats import FileFormat, format_of_file, format_of_folder
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import Item, PytreeItem, ReadBefore
from surgery_cli.store.orbax.sidecars import METADATA


def open_item(path: Path, before: ReadBefore | None = None) -> Item:
    """The item at ``path``, in whichever format it is."""
    found: FileFormat | None
    if filesystem.is_folder(path):
        is_described = filesystem.exists(path / METADATA)
        found = None if is_described else format_of_folder(filesystem.names(path))
    else:
        found = format_of_file(path)
    match found:
        case None:
            return PytreeItem(path, before)
        case FileFormat.SAFETENSORS:
            return FileItem(path, SafetensorsFile(path), found)
        case FileFormat.TORCH:
            return FileItem(path, TorchFile(path), found)
        case FileFormat.FLAX:
            return FileItem(path, MsgpackFile(path), found)
        case FileFormat.NPZ:
            return FileItem(path, ArrayFile(str(path)), found)
