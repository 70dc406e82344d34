"""Arrays in ``.npy`` and ``.npz`` files: told from their headers, and where they stand. Never unpickled."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.limits import LEAVES
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray, Segment
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.zip_errors import refusals_told
from surgery_cli.tree.dtypes import can_be_shape, is_known, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

if TYPE_CHECKING:
    import numpy as np

_CHECKED_AT_ONCE: Final = 1 << 20


class Checksum(msgspec.Struct, frozen=True):
    """The CRC-32 of a run of bytes in an archive, as that says it."""

    offset: int
    length: int
    crc: int


class ArrayEntry(msgspec.Struct, frozen=True):
    """An array of the file: its spec, and its place if its values stand there in C order, not compressed."""

    spec: LeafSpec
    place: ContiguousArray | None = None
    member: str | None = None
    """The name of the entry in a ``.npz``."""
    checksum: Checksum | None = None
    """Of an entry that is not compressed; where it is, unpacking it looks at that."""


def array_spec(shape: tuple[int, ...], dtype: str) -> LeafSpec:
    return LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype=dtype)


def npy_entry(path: Path) -> ArrayEntry:
    try:
        with filesystem.reader(path) as file:
            return _described(path, file, 0, filesystem.size(path), member=None)
    except OSError as error:
        raise unreadable(path, error) from None


def npz_entries(path: Path) -> dict[LeafPath, ArrayEntry]:
    found = {}
    try:
        with filesystem.reader(path) as stored, refusals_told(), zipfile.ZipFile(stored) as archive:
            LEAVES.check(len(archive.infolist()), f"'{path}'")
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    _refuse_misplaced(path, member)
                    with archive.open(member):  # where its own header has another name: an array's
                        continue
                name = member.filename.removesuffix(".npy")
                if LeafPath((name,)) in found:
                    raise damaged(path, f"the entry '{name}' stands twice in it")
                _refuse_lying_sizes(path, member)
                with archive.open(member) as file:
                    offset = _stored_offset(path, member)
                    entry = _described(path, file, offset, member.file_size, member.filename)
                if offset is not None:
                    entry = replace(entry, checksum=Checksum(offset, member.file_size, member.CRC))
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
        raise damaged(path, str(error)) from None
    return found


def _refuse_misplaced(path: Path, member: zipfile.ZipInfo) -> None:
    """Refuse an entry that is said to stand where the file has ended."""
    if member.header_offset > filesystem.size(path):  # the system would call it an invalid argument
        raise damaged(path, f"the entry '{member.filename}' lies outside of it")


def _refuse_lying_sizes(path: Path, member: zipfile.ZipInfo) -> None:
    """Refuse an entry that claims more bytes than its stored ones can unpack to."""
    # A run of zeros is the best case of deflate: 1032 to 1.
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
    ratio = ratios.get(member.compress_type)
    if ratio is None:
        raise damaged(path, f"'{member.filename}' is not compressed as NumPy does it")
    _refuse_misplaced(path, member)
    available = min(member.compress_size, filesystem.size(path))
    if member.file_size > available * ratio:
        raise damaged(
            path, f"'{member.filename}' claims {member.file_size} bytes, and {available} are stored"
        )


def _stored_offset(path: Path, member: zipfile.ZipInfo) -> int | None:
    """Where an entry that is not compressed begins in the archive; None if it is compressed."""
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    head = filesystem.read(path, member.header_offset, 30)
    if len(head) < 30:
        raise damaged(path, f"the entry '{member.filename}' lies outside of it")
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
) -> ArrayEntry:
    """An array from its header; ``offset`` and ``size`` say where the ``.npy`` bytes stand in the file.

    Raises:
        CheckpointError: it is no array, holds objects, or is longer or shorter than its bytes.
    """
    from numpy.lib import format as npy

    label = f"{path}:{member.removesuffix('.npy')}" if member else str(path)
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise damaged(path, f"'{label}' has the unknown format {version}")
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = reader(file)
    except _HEADER_ERRORS as error:
        raise damaged(path, str(error).split("\n", 1)[0]) from None
    begin = file.tell()
    if dtype.hasobject:
        raise CheckpointError(
            f"'{label}' holds Python objects",
            why="they are pickled, and a pickle runs code when it is loaded; surgery never does that",
            fix="save it again as an array of numbers",
        )
    needed = math.prod(shape) * dtype.itemsize
    if not can_be_shape(shape, dtype.itemsize):
        raise damaged(path, f"'{label}' has the shape {list(shape)}")
    if needed != size - begin:
        raise damaged(
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
        place = ContiguousArray(path, shape, dtype.name, segments=(segment,))
    spec = array_spec(shape, dtype.name)
    if place is None:  # it is unpacked as a whole
        spec = replace(spec, chunk_shape=shape, write_shape=shape)
    return ArrayEntry(spec, place, member)


def array_in(path: Path, file: IO[bytes], member: str) -> np.ndarray[Any, Any]:
    """The array of an entry from its bytes, in this machine's byte order.

    Raises:
        CheckpointError: it is no array of numbers.
    """
    import numpy as np
    from numpy.lib import format as npy

    size = file.seek(0, 2)
    file.seek(0)
    _described(path, file, None, size, member)
    file.seek(0)
    array = npy.read_array(file, allow_pickle=False)
    return np.asarray(array).astype(array.dtype.newbyteorder("="), copy=False)


def unpacked(path: Path, member: str | None) -> np.ndarray[Any, Any]:
    """The whole array, in this machine's byte order: for compressed entries, Fortran order and foreign byte order.

    Raises:
        CheckpointError: it does not decode.
    """
    import numpy as np
    from numpy.lib import format as npy

    try:
        with filesystem.reader(path) as file, refusals_told():
            if member is None:
                array = npy.read_array(file, allow_pickle=False)
            else:
                with zipfile.ZipFile(file) as archive, archive.open(member) as entry:
                    array = npy.read_array(entry, allow_pickle=False)
                    entry.read()  # to its end, where the checksum is looked at
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, EOFError, zipfile.BadZipFile, _decompression_error()) as error:
        raise damaged(path, str(error)) from None
    return np.asarray(array).astype(array.dtype.newbyteorder("="), copy=False)


def check_bytes(path: Path, checksum: Checksum) -> None:
    """See that the bytes of an entry of a ``.npz`` have the checksum that its archive says.

    Raises:
        CheckpointError: they have not.
    """
    import zlib

    crc, left = 0, checksum.length
    try:
        with filesystem.reader(path) as file:
            file.seek(checksum.offset)
            while left and (block := file.read(min(left, _CHECKED_AT_ONCE))):
                crc, left = zlib.crc32(block, crc), left - len(block)
    except OSError as error:
        raise unreadable(path, error) from None
    if left or crc != checksum.crc:
        raise damaged(path, f"the bytes at {checksum.offset} do not have their checksum")


def _decompression_error() -> type[Exception]:
    import zlib

    return zlib.error


def damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' is not a whole array file",
        why=why,
        fix="it was cut short or damaged; write it again",
    )
