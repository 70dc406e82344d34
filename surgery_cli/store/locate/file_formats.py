"""The formats that are files, told from names and first bytes: of a file, or of a folder of shards."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import beginning, starts_as_msgpack, unreadable
from surgery_cli.store.filesystem.zip_errors import is_of_reading, refusals_told

INDEX_SUFFIX: Final = ".index.json"
"""What follows the suffix of the shards in the name of their index."""

TORCH_PICKLE: Final = "/data.pkl"
"""How the entry is called, below a folder of any name, that says what the tensors of a PyTorch archive are."""

ZIP_MARK: Final = b"PK\x03\x04"

_TORCH_SHARD: Final = re.compile(
    r"(?:pytorch_model|adapter_model|diffusion_pytorch_model)(?:-\d+-of-\d+)?\.bin"
)


class FileFormat(StrEnum):
    """A format that is a file, or several in a folder; its value is what `inspect` calls it."""

    FLAX = "flax msgpack"
    SAFETENSORS = "safetensors"
    TORCH = "torch zip"
    NPZ = "npz"


FILE_PHRASES: Final = {
    FileFormat.SAFETENSORS: "a safetensors file",
    FileFormat.TORCH: "a PyTorch file",
    FileFormat.NPZ: "a NumPy npz file",
}
FOLDER_PHRASES: Final = {
    FileFormat.SAFETENSORS: "safetensors shards",
    FileFormat.TORCH: "PyTorch shards",
}


class ShardKind(msgspec.Struct, frozen=True):
    """How the files of a format are called in a folder, as Hugging Face's libraries write and expect it."""

    suffix: str
    """Of every file: ``.safetensors``."""
    is_shard: Callable[[str], bool] = bool
    """Whether a file of that suffix belongs to the tree where no index says so."""

    def names(self, inside: Iterable[str]) -> list[str]:
        """The files of this kind among the names in a folder; the index is what tells, where there is one."""
        return [name for name in inside if self._is_one(name)]

    def stand_among(self, inside: Iterable[str]) -> bool:
        """True if a folder with these names holds files of this kind."""
        return any(n.endswith(self.suffix + INDEX_SUFFIX) or self._is_one(n) for n in inside)

    def _is_one(self, name: str) -> bool:
        return name.endswith(self.suffix) and self.is_shard(name)


SAFETENSORS_SHARDS: Final = ShardKind(".safetensors")
TORCH_SHARDS: Final = ShardKind(".bin", lambda name: _TORCH_SHARD.fullmatch(name) is not None)
"""Anybody may call anything `.bin`: only what Hugging Face's libraries have called so."""


def format_of_file(path: Path) -> FileFormat | None:
    """The format of a file, told from its name and its first bytes; None if it is none of them."""
    if path.suffix == ".safetensors" or _starts_as_safetensors(path):
        return (
            FileFormat.SAFETENSORS
        )  # by its begin, too: the cache of a hub names files by digests
    if starts_as_msgpack(path):
        return FileFormat.FLAX
    if path.suffix == ".npz" and any(name.endswith(".npy") for name in zip_names(path)):
        return FileFormat.NPZ
    return FileFormat.TORCH if is_torch_archive(path) else None


def format_of_folder(names: Iterable[str]) -> FileFormat | None:
    """The format of the shards in a folder with these names; where there are several, the one that readers prefer."""
    inside = list(names)
    if SAFETENSORS_SHARDS.stand_among(inside):
        return FileFormat.SAFETENSORS
    return FileFormat.TORCH if TORCH_SHARDS.stand_among(inside) else None


def _starts_as_safetensors(path: Path) -> bool:
    head = beginning(path, 10)
    length = int.from_bytes(head[:8], "little")
    return head[8:10] in (b'{"', b"{}") and 2 <= length <= filesystem.size(path) - 8


def is_torch_archive(path: Path) -> bool:
    """True for a zip archive with the pickle in which PyTorch says what its tensors are; also if it was cut short."""
    head = beginning(path, 512)
    length = int.from_bytes(head[26:28], "little")
    if head.startswith(ZIP_MARK) and head[30 : 30 + length].endswith(TORCH_PICKLE.encode()):
        return True  # PyTorch writes it first
    return any(name.endswith(TORCH_PICKLE) for name in zip_names(path))


def zip_names(path: Path) -> list[str]:
    """The names of the entries, if it is a zip archive that can be read.

    Raises:
        CheckpointError: the disk or a service does not give it, or it was replaced or removed since it was found.
    """
    if beginning(path, len(ZIP_MARK)) != ZIP_MARK:
        return []
    try:
        with filesystem.reader(path) as file, refusals_told(), zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except OSError as error:
        if is_of_reading(error):  # which says nothing of the archive
            raise unreadable(path, error) from None
        return []
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
        return []
