"""The zip archive in which PyTorch saves: a pickle, and an entry for every storage, none of them compressed.

Source: ``torch.serialization`` and ``caffe2/serialize/inline_container.cc`` of PyTorch.
"""

from __future__ import annotations

import struct
import sys
import zipfile
import zlib
from functools import cached_property
from pathlib import Path
from typing import Final

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.limits import LEAVES, PICKLE
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.zip_errors import refusals_told
from surgery_cli.store.locate.file_formats import TORCH_PICKLE, ZIP_MARK
from surgery_cli.words.lists import quoted

_CHECKED_AT_ONCE: Final = 4 << 20


class TorchArchive:
    """The entries of one archive, by the names that they have below its one folder.

    Raises:
        CheckpointError: (on first use) it is no whole archive, its entries are compressed, or it holds code.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked: set[str] = set()

    @cached_property
    def entries(self) -> dict[str, zipfile.ZipInfo]:
        try:
            with (
                filesystem.reader(self.path) as file,
                refusals_told(),
                zipfile.ZipFile(file) as archive,
            ):
                infos = archive.infolist()
        except OSError as error:
            raise unreadable(self.path, error) from None
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise damaged(self.path, f"its list of entries does not read: {error}") from None
        LEAVES.check(len(infos), f"'{self.path}'")
        pickles = [info.filename for info in infos if info.filename.endswith(TORCH_PICKLE)]
        if len(pickles) != 1:
            raise damaged(self.path, f"it has {len(pickles)} pickles: {quoted(pickles, 3)}")
        folder = pickles[0].removesuffix("data.pkl")
        found = {
            info.filename.removeprefix(folder): info
            for info in infos
            if info.filename.startswith(folder)
        }
        if len(found) != sum(info.filename.startswith(folder) for info in infos):
            raise damaged(self.path, "a name stands twice in it")
        if "constants.pkl" in found or any(name.startswith("code/") for name in found):
            raise CheckpointError(
                f"'{self.path}' is a TorchScript program",
                why="its pickle speaks of code that stands beside it; surgery runs none",
                fix="where you trust it: `torch.save(torch.jit.load(…).state_dict(), 'x.pt')`",
            )
        self._refuse_packed(found)
        return found

    def _refuse_packed(self, entries: dict[str, zipfile.ZipInfo]) -> None:
        packed = [
            name for name, info in entries.items() if info.compress_type != zipfile.ZIP_STORED
        ]
        if packed:
            raise CheckpointError(
                f"'{self.path}' was packed again: '{packed[0]}' is compressed",
                why="PyTorch stores tensors as they are, and blocks of them are read where they stand",
                fix="unpack it and `zip -0 -r` the folder that comes out",
            )

    @cached_property
    def pickle(self) -> bytes:
        """The bytes of the pickle."""
        PICKLE.check(self.entries["data.pkl"].file_size, f"the pickle in '{self.path}'")
        return self._small("data.pkl")

    @cached_property
    def is_swapped(self) -> bool:
        """True if its values are in the byte order of another kind of machine."""
        if "byteorder" not in self.entries:
            return sys.byteorder != "little"
        order = self._small("byteorder")
        if order not in (b"little", b"big"):
            raise damaged(self.path, f"its byte order is {order[:20]!r}")
        return order.decode() != sys.byteorder

    def size(self, name: str) -> int:
        """Bytes of an entry.

        Raises:
            CheckpointError: there is none of that name.
        """
        if name not in self.entries:
            raise damaged(self.path, f"its pickle names '{name}', which is not there")
        return self.entries[name].file_size

    def offset(self, name: str) -> int:
        """Where the bytes of an entry begin.

        Raises:
            CheckpointError: they do not lie in the file.
        """
        info = self.entries[name]
        head = filesystem.read(self.path, info.header_offset, 30)
        if len(head) < 30 or not head.startswith(ZIP_MARK):
            raise damaged(self.path, f"its entry '{name}' does not lie where it says")
        start = int(info.header_offset + 30 + sum(struct.unpack("<HH", head[26:30])))
        if info.compress_size != info.file_size or start + info.file_size > self._file_size:
            raise damaged(self.path, f"its entry '{name}' claims {info.file_size} bytes")
        return start

    def check(self, name: str, whole: memoryview | None = None) -> None:
        """Hold the bytes of an entry against its checksum, once; ``whole``: all of them, where they were just read.

        Raises:
            CheckpointError: they are not those that were saved.
        """
        expected = self.entries[name].CRC
        if name in self._checked or not expected:  # zero where PyTorch was told to leave it out
            return
        found = self._checksum(name) if whole is None else zlib.crc32(whole)
        if found != expected:
            raise damaged(
                self.path, f"'{name}' has the checksum {found:08x}, and {expected:08x} is on record"
            )
        self._checked.add(name)

    @cached_property
    def _file_size(self) -> int:
        return filesystem.size(self.path)

    def _checksum(self, name: str) -> int:
        left, found = self.entries[name].file_size, 0
        with filesystem.reader(self.path) as file:
            file.seek(self.offset(name))
            while left and (piece := file.read(min(left, _CHECKED_AT_ONCE))):
                found = zlib.crc32(piece, found)
                left -= len(piece)
        return found

    def _small(self, name: str) -> bytes:
        try:
            content = filesystem.read(self.path, self.offset(name), self.size(name))
        except OSError as error:
            raise unreadable(self.path, error) from None
        self.check(name, memoryview(content))
        return content


def damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' is not a whole PyTorch checkpoint",
        why=why,
        fix="it was cut short or damaged; copy it again from where it was whole",
    )
