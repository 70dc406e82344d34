"""Files of whole numbers that say an order: small, and read before anything is decided."""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from surgery_cli.errors import MissingError, PlanError
from surgery_cli.inputs.json_decoding import decode_json

_MAGIC: Final = b"\x93NUMPY"
_LONGEST_HEADER: Final = 10_000
_INTEGERS: Final = {
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
}
_FORMS: Final = (
    "a `.npy` of whole numbers with one axis, a `.json` list, or text with one number a line"
)


def order_in(file: str, read: Callable[[str], bytes]) -> tuple[int, ...]:
    """The numbers in a file, which ``read`` reads.

    Raises:
        MissingError: there is no such file.
        PlanError: it cannot be read, or holds something else.
    """
    try:
        return _numbers(read(file), is_json=file.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(
            f"'{file}' does not exist", fix=f"give {_FORMS}", field="index"
        ) from None
    except OSError as error:
        why, fix = error.strerror or str(error), getattr(error, "fix", "")
        raise PlanError(f"'{file}' cannot be read", why=why, fix=fix, field="index") from None
    except (ValueError, msgspec.DecodeError, struct.error) as error:
        raise PlanError(
            f"'{file}' holds no order", why=str(error), fix=f"give {_FORMS}", field="index"
        ) from None


def _numbers(raw: bytes, *, is_json: bool) -> tuple[int, ...]:
    if raw.startswith(_MAGIC):
        return _npy(raw)
    if is_json:
        return tuple(decode_json(raw, list[int]))
    return tuple(int(line) for line in raw.decode().split())


def _npy(raw: bytes) -> tuple[int, ...]:
    """The numbers of a NumPy file, which the format's own page describes.

    Source: numpy.lib.format, versions 1 to 3.
    """
    long = raw[6:7] > b"\1"
    (length,) = struct.unpack_from("<I" if long else "<H", raw, 8)
    start = (12 if long else 10) + length
    if length > _LONGEST_HEADER:
        raise ValueError(
            f"its header has {length:,} bytes, and NumPy's have {_LONGEST_HEADER:,} at most"
        )
    try:
        header = ast.literal_eval(raw[start - length : start].decode("latin1").strip())
        kind, shape = header["descr"], header["shape"]
        is_order = kind[1:] in _INTEGERS and type(shape) is tuple and len(shape) == 1
        is_order = is_order and type(shape[0]) is int and 0 <= shape[0] <= len(raw)
    except (SyntaxError, RecursionError, MemoryError, LookupError, TypeError, ValueError):
        raise ValueError("its header does not read") from None
    if not is_order:
        raise ValueError(
            f"it is an array of {kind} with shape {list(shape) if isinstance(shape, tuple) else shape}"
        )
    order = ">" if kind[0] == ">" else "<"
    return struct.unpack_from(f"{order}{shape[0]}{_INTEGERS[kind[1:]]}", raw, start)
