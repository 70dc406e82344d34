"""Files of arrays that an edit takes values from: ``.npy``, ``.npz`` and ``.safetensors``. Never unpickled."""

from __future__ import annotations

import hashlib
import math
import struct
import tokenize
import zipfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.addresses import local_address
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray, Segment
from surgery_cli.store.files.safetensors import read_header
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.locate import lfs_pointers, refusals
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.dtypes import is_known, item_bytes
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

if TYPE_CHECKING:
    import numpy as np

SUFFIXES: Final = (".npy", ".npz", ".safetensors")
"""What ``ArrayFile`` opens."""


class _Entry(msgspec.Struct, frozen=True):
    """An array of the file: its spec, and its place if its values stand there in C order, not compressed."""

    spec: LeafSpec
    place: ContiguousArray | None = None
    member: str | None = None


class ArrayFile:
    """Arrays in one file, by name; only headers are read to open it.

    The array of a ``.npy`` file is called like the file, those of the others like their entries; a name is one key.
    ``text`` may name one entry, as ``x.npz:ENTRY``: then that is all there is.

    Raises:
        PlanError: the file or the entry does not exist, or its suffix is another.
        CheckpointError: the file is damaged, or holds pickled objects.
    """

    step: Final = None
    steps: Final[Mapping[int, str]] = MappingProxyType({})

    def __init__(self, text: str) -> None:
        self.text = local_address(text, refusal=CheckpointError)
        self.path, entry = _split(self.text)
        refuse_special(self.path)
        if not filesystem.is_file(self.path):
            raise refusals.missing(self.path.absolute())
        if lfs_pointers.is_pointer(self.path):
            raise lfs_pointers.pointer(self.path, self.path.absolute().parent)
        self._entries = self._opened()
        if entry is not None:
            self._entries = {LeafPath((entry,)): self._entry(entry)}

    @property
    def address(self) -> str:
        return str(Path(self.text).expanduser().absolute())

    @property
    def places(self) -> frozenset[str]:
        return frozenset({str(filesystem.real(self.path))})

    def _opened(self) -> dict[LeafPath, _Entry]:
        match self.path.suffix:
            case ".npy":
                return {LeafPath((self.path.stem,)): _npy_entry(self.path)}
            case ".npz":
                return _npz_entries(self.path)
            case ".safetensors":
                arrays = read_header(self.path)
                return {path: _Entry(_spec(a.shape, a.dtype), a) for path, a in arrays.items()}
        raise PlanError(
            f"'{self.path}' is no file of arrays that surgery reads",
            why=f"its name ends in '{self.path.suffix}'",
            fix=f"use one of {', '.join(SUFFIXES)}",
        )

    def _entry(self, name: str) -> _Entry:
        """The entry of that name.

        Raises:
            PlanError: there is none; the nearest are shown.
        """
        found = self._entries.get(LeafPath((name,)))
        if found is None:
            names = [str(path) for path in self._entries]
            near = nearest(name, names) or names[:3]
            raise PlanError(
                f"'{self.path}' has no entry '{name}'",
                why=f"it has {len(names)}: {', '.join(map(repr, near))}{', …' * (len(names) > len(near))}",
                fix=f"`{self.path}:{near[0]}`" if near else "",
            )
        return found

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: entry.spec for path, entry in self._entries.items()})

    @property
    def place_on_disk(self) -> Path:
        """The file."""
        return self.path

    def is_unchanged(self) -> bool:
        """True if the file still is what it was when the fingerprint was taken."""
        return filesystem.is_file(self.path) and self._fingerprint_now() == self.fingerprint

    @cached_property
    def fingerprint(self) -> str:
        """A digest of names, shapes, dtypes, and of the file's size and time; costs no array bytes."""
        return self._fingerprint_now()

    def _fingerprint_now(self) -> str:
        record = hashlib.sha256()
        status = filesystem.status(self.path)
        record.update(f"{status.st_size}\0{status.st_mtime_ns}\n".encode())
        for path, spec in self.tree.items():
            record.update(f"{path.spelling}\0{spec.type_text}\n".encode())
        return f"sha256:{record.hexdigest()}"

    def read(self, path: LeafPath, window: Window | None = None) -> np.ndarray[Any, Any]:
        """An array's values, or a block of them.

        Raises:
            KeyError: there is no such array.
            CheckpointError: the values do not read.
        """
        import numpy as np

        entry = self._entries[path]
        if entry.place is not None:
            return entry.place.read(window)
        try:
            whole = _unpacked(self.path, entry.member)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, _decompression_error()) as error:
            raise _damaged(self.path, str(error)) from None
        if whole.shape != entry.spec.shape or whole.dtype.name != entry.spec.dtype:
            raise _damaged(self.path, "an entry is not what its header said when it was opened")
        return np.ascontiguousarray(whole if window is None else whole[window])


def _split(text: str) -> tuple[Path, str | None]:
    """File and entry; a file that exists under the whole text wins."""
    path = Path(text).expanduser()
    if filesystem.exists(path):
        return path, None
    for suffix in SUFFIXES[1:]:
        head, found, entry = text.partition(f"{suffix}:")
        if found and entry:
            return Path(head + suffix).expanduser(), entry
    return path, None


def _spec(shape: tuple[int, ...], dtype: str) -> LeafSpec:
    return LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype=dtype)


def _npy_entry(path: Path) -> _Entry:
    try:
        with filesystem.reader(path) as file:
            return _described(path, file, 0, filesystem.size(path), member=None)
    except OSError as error:
        raise unreadable(path, error) from None


def _npz_entries(path: Path) -> dict[LeafPath, _Entry]:
    found = {}
    try:
        with filesystem.reader(path) as stored, zipfile.ZipFile(stored) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    continue
                name = member.filename.removesuffix(".npy")
                if LeafPath((name,)) in found:
                    raise _damaged(path, f"the entry '{name}' stands twice in it")
                _refuse_lying_sizes(path, member)
                with archive.open(member) as file:
                    offset = _stored_offset(path, member)
                    entry = _described(path, file, offset, member.file_size, member.filename)
                found[LeafPath((name,))] = entry
    except OSError as error:
        raise unreadable(path, error) from None
    except (
        zipfile.BadZipFile,
        ValueError,
        EOFError,
        RuntimeError,
        NotImplementedError,
        _decompression_error(),
    ) as error:
        raise _damaged(path, str(error)) from None
    return found


def _refuse_lying_sizes(path: Path, member: zipfile.ZipInfo) -> None:
    """Refuse an entry that claims more bytes than its stored ones can unpack to."""
    # A run of zeros is the best case of deflate: 1032 to 1.
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
    ratio = ratios.get(member.compress_type)
    if ratio is None:
        raise _damaged(path, f"'{member.filename}' is not compressed as NumPy does it")
    available = min(member.compress_size, filesystem.size(path))
    if member.file_size > available * ratio:
        raise _damaged(
            path, f"'{member.filename}' claims {member.file_size} bytes, and {available} are stored"
        )


def _stored_offset(path: Path, member: zipfile.ZipInfo) -> int | None:
    """Where an entry that is not compressed begins in the archive; None if it is compressed."""
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    head = filesystem.read(path, member.header_offset, 30)
    if len(head) < 30:
        raise _damaged(path, f"the entry '{member.filename}' lies outside of it")
    name, extra = struct.unpack("<HH", head[26:30])
    return int(member.header_offset + 30 + name + extra)


_HEADER_ERRORS: Final = (
    ValueError,
    SyntaxError,
    tokenize.TokenError,
    EOFError,
    MemoryError,
    RecursionError,
    TypeError,
)
"""What NumPy raises for headers that are not the text of a dict of its own."""


def _described(
    path: Path, file: IO[bytes], offset: int | None, size: int, member: str | None
) -> _Entry:
    """An array from its header; ``offset`` and ``size`` say where the ``.npy`` bytes stand in the file.

    Raises:
        CheckpointError: it is no array, holds objects, or is longer or shorter than its bytes.
    """
    from numpy.lib import format as npy

    label = f"{path}:{member.removesuffix('.npy')}" if member else str(path)
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise _damaged(path, f"'{label}' has the unknown format {version}")
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = reader(file)
    except _HEADER_ERRORS as error:
        raise _damaged(path, str(error).split("\n", 1)[0]) from None
    begin = file.tell()
    if dtype.hasobject:
        raise CheckpointError(
            f"'{label}' holds Python objects",
            why="they are pickled, and a pickle runs code when it is loaded; surgery never does that",
            fix="save it again as an array of numbers",
        )
    needed = math.prod(shape) * dtype.itemsize
    if needed != size - begin or min(shape, default=0) < 0:
        raise _damaged(
            path, f"'{label}' should have {needed} bytes of values, and has {size - begin}"
        )
    if not is_known(dtype.name) or dtype.itemsize != item_bytes(dtype.name):
        raise CheckpointError(
            f"'{label}' holds {dtype}",
            why="NumPy does not store the dtypes of ml_dtypes (bfloat16, float8) by name"
            if dtype.kind == "V"
            else "leaves are numbers or booleans",
            fix="save it as float32, or as safetensors",
        )
    # Values that can be read block by block: in C order (or without a second axis), in this machine's byte order.
    place = None
    flat = not fortran or sum(n > 1 for n in shape) < 2
    if offset is not None and flat and dtype.isnative:
        segment = Segment(offset + begin, needed)
        place = ContiguousArray(path, (segment,), shape, dtype.name)
    return _Entry(_spec(shape, dtype.name), place, member)


def _unpacked(path: Path, member: str | None) -> np.ndarray[Any, Any]:
    """The whole array, in this machine's byte order: for compressed entries, Fortran order and foreign byte order."""
    import numpy as np
    from numpy.lib import format as npy

    if member is None:
        with filesystem.reader(path) as file:
            array = npy.read_array(file, allow_pickle=False)
    else:
        with (
            filesystem.reader(path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(member) as entry,
        ):
            array = npy.read_array(entry, allow_pickle=False)
    return np.asarray(array).astype(array.dtype.newbyteorder("="), copy=False)


def _decompression_error() -> type[Exception]:
    import zlib

    return zlib.error


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' is not a whole array file",
        why=why,
        fix="it was cut short or damaged; write it again",
    )
