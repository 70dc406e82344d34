"""An item that is a file, or a folder of shards."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import Any

from surgery_cli.store import filesystem
from surgery_cli.store.files import fingerprints
from surgery_cli.store.files.contiguous import ContiguousArray
from surgery_cli.store.files.shards import names_read
from surgery_cli.store.locate.file_formats import SAFETENSORS_SHARDS, TORCH_SHARDS, FileFormat
from surgery_cli.store.open.bounds import check_paths
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


class FileItem:
    """A tree in a file of its own, or in several in a folder."""

    def __init__(self, directory: Path, content: Any, format: FileFormat) -> None:
        self.directory = directory
        self.content = content
        self.format = format
        self.layout: str = format.value
        self.dead_bytes = 0

    @cached_property
    def tree(self) -> TreeSpec:
        found: TreeSpec = self.content.tree
        check_paths(found, self.directory)
        return found

    @property
    def tells_kinds(self) -> bool:
        """True for a format that tells arrays of JAX from NumPy's."""
        return self.format is FileFormat.FLAX

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        return self.content.read(path, window)

    def identity(self, path: LeafPath) -> Hashable | None:
        return None

    def array_of(self, path: LeafPath) -> ContiguousArray | None:
        found: ContiguousArray | None = self.content.place_of(path)
        return found

    @property
    def files(self) -> list[Path]:
        """The file, or those of a folder that are read: whatever stands beside them is nobody's business."""
        if not filesystem.is_folder(self.directory):
            return [self.directory]
        kind = TORCH_SHARDS if self.format is FileFormat.TORCH else SAFETENSORS_SHARDS
        return [self.directory / name for name in names_read(self.directory, kind)]

    def ranges_of(self, path: LeafPath) -> tuple[Path, list[tuple[int, int]]]:
        """In which file the values of a leaf stand, and where; nowhere, if they are not as they are in memory."""
        array = self.array_of(path)
        if array is None:
            return self.directory, []
        return array.path, [(one.offset, one.offset + one.length) for one in array.segments]

    def fingerprint(self) -> str:
        return fingerprints.of_files(self.files)
