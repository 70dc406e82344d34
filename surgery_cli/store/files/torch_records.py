"""The records of which PyTorch makes tensors, and what else stands in checkpoints that are plain data.

Each is a function here that takes what stands in the pickle and says what is meant; none of them touches PyTorch.
Source: ``torch._utils`` and ``torch.storage`` of PyTorch (``_rebuild_tensor_v2`` and its kin).
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from surgery_cli.store.files.numpy_records import NUMPY_RECORDS
from surgery_cli.store.files.pickle_values import Name, NotPlain, NotRead, Record, Stranger, pairs
from surgery_cli.tree.dtypes import can_be_shape, item_bytes

_MOST_AXES: Final = 64  # of NumPy and PyTorch


class Storage(msgspec.Struct, frozen=True):
    """Values in an entry of the archive; ``dtype`` is None where they are bytes, whose meaning each tensor says."""

    key: str
    dtype: str | None
    count: int

    @property
    def bytes(self) -> int:
        return self.count * (1 if self.dtype is None else item_bytes(self.dtype))


class Tensor(msgspec.Struct, frozen=True):
    """A tensor: where in a storage its values stand; offset and strides count elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """True if its values stand one after the other, in C order."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return math.prod(self.shape) == 0
            step *= size
        return True


def storage(reference: Any) -> Storage:
    """What a persistent id stands for."""
    if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
        raise NotPlain("its pickle refers to something that is no storage")
    _, kind, key, _, count = reference
    if isinstance(kind, Stranger):
        raise NotPlain(f"its pickle has a storage of the kind '{kind.name}'")
    if not isinstance(kind, Name) or not isinstance(key, str) or not _is_count(count):
        raise NotPlain("its pickle has a storage without kind, name or size")
    if kind.last not in _STORAGES:
        raise NotRead(f"its pickle has a storage of the kind '{kind.text}'")
    return Storage(key, _STORAGES[kind.last], count)


def _rebuild_tensor(of: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    if not isinstance(of, Storage) or of.dtype is None:
        raise NotPlain("its pickle has a tensor without a storage")
    return _tensor(of, of.dtype, offset, size, stride)


def _rebuild_tensor_v2(
    of: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, marks: Any = None
) -> Tensor:
    _refuse_marks(marks)
    return _rebuild_tensor(of, offset, size, stride)


def _rebuild_tensor_v3(
    of: Any,
    offset: Any,
    size: Any,
    stride: Any,
    _grad: Any,
    _hooks: Any,
    dtype: Any,
    marks: Any = None,
) -> Tensor:
    """Of dtypes that have no storage of their own: the storage is of bytes."""
    _refuse_marks(marks)
    if not isinstance(of, Storage) or not isinstance(dtype, Name):
        raise NotPlain("its pickle has a tensor without a storage or a dtype")
    name = DTYPES.get(dtype.last)
    if name is None:
        raise NotRead(f"its pickle has a tensor of the dtype '{dtype.text}'")
    return _tensor(of, name, offset, size, stride)


def _refuse_marks(marks: Any) -> None:
    """Refuse tensors whose stored values are not the values: conjugated and negated views."""
    if marks:
        names = [str(name) for name in marks] if isinstance(marks, dict) else []
        raise NotRead(
            f"a tensor in it is marked ({', '.join(names)[:80]}): its values are not those that are stored"
        )


def _tensor(of: Storage, dtype: str, offset: Any, size: Any, stride: Any) -> Tensor:
    counts = (size, stride)
    if not all(isinstance(one, tuple) and all(map(_is_count, one)) for one in counts):
        raise NotPlain("its pickle has a tensor whose sizes or strides are no numbers")
    if not _is_count(offset) or len(size) != len(stride) or len(size) > _MOST_AXES:
        raise NotPlain("its pickle has a tensor whose sizes and strides do not go together")
    made = Tensor(of, dtype, offset, tuple(size), tuple(stride))
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    elements = math.prod(size)
    if elements and (last + 1) * item_bytes(dtype) > of.bytes:
        raise NotPlain(
            f"a tensor in it reaches to byte {(last + 1) * item_bytes(dtype)} of the storage"
            f" '{of.key}', which has {of.bytes}"
        )
    if not can_be_shape(made.shape, item_bytes(dtype)):
        raise NotPlain(f"a tensor in it has the shape {list(size)}")
    return made


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _the_tensor(value: Any, *_: Any) -> Tensor:
    """A parameter is the tensor in it; whether it is trained, and its attributes, are no leaves."""
    if not isinstance(value, Tensor):
        raise NotPlain("its pickle has a parameter without a tensor")
    return value


def _from_type(function: Any, kind: Any, arguments: Any, _attributes: Any) -> Any:
    """A tensor with attributes, as ``torch._tensor._rebuild_from_type_v2`` has it."""
    record = RECORDS.get(function.text) if isinstance(function, Name) else None
    if record is None or not isinstance(kind, Name) or not isinstance(arguments, tuple):
        raise NotPlain("its pickle has a tensor of a kind that is not known")
    return record(*arguments)


def _dict(*parts: Any) -> dict[Any, Any]:
    """``OrderedDict`` and its like: empty, of another dict, or of pairs."""
    if not parts:
        return {}
    (content,) = parts
    if isinstance(content, dict):
        return dict(content)
    if isinstance(content, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in content
    ):
        return pairs([pair[0] for pair in content], [pair[1] for pair in content])
    raise NotPlain("its pickle has a dict of something else than items")


def _default_dict(*parts: Any) -> dict[Any, Any]:
    """What makes the values that are missing is no content."""
    return _dict(*parts[1:])


def _size(*parts: Any) -> tuple[int, ...]:
    if len(parts) != 1 or not isinstance(parts[0], tuple) or not all(map(_is_count, parts[0])):
        raise NotPlain("its pickle has a size that is no sequence of numbers")
    return tuple(parts[0])


def _device(*parts: Any) -> str:
    if not parts or not all(isinstance(part, str | int) for part in parts):
        raise NotPlain("its pickle has a device without a name")
    return ":".join(map(str, parts))


def _bytes(*parts: Any) -> bytes:
    """How none stand in pickles of protocol 2, those of an empty array among them."""
    if parts:
        raise NotPlain("its pickle makes bytes of something else")
    return b""


def _encode(text: Any, encoding: Any) -> bytes:
    """How bytes stand in pickles of protocol 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise NotPlain("its pickle encodes something else than bytes")
    return text.encode("latin-1")


def _complex(*parts: Any) -> complex:
    if len(parts) != 2 or not all(isinstance(part, float | int) for part in parts):
        raise NotPlain("its pickle has a complex number without two parts")
    return complex(*parts)


_STORAGES: Final = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": None,
}
"""The dtype of each kind of storage."""

DTYPES: Final = {
    **{name: name for name in ("float16", "bfloat16", "float32", "float64", "bool")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: name for name in ("complex64", "complex128")},
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2": "float8_e5m2",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
}
"""PyTorch's dtypes that are ours, too; not those of several values in a byte, and none that are quantized."""

RECORDS: Final[dict[str, Record | None]] = {
    **NUMPY_RECORDS,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _the_tensor,
    "torch._utils._rebuild_parameter_with_state": _the_tensor,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Tensor": None,
    "torch.nn.parameter.Parameter": None,
    "torch.nn.parameter.Buffer": None,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _dict,
    "collections.Counter": _dict,
    "collections.defaultdict": _default_dict,
    "builtins.dict": _dict,
    **dict.fromkeys(("builtins.list", "builtins.int", "builtins.float"), None),
    "builtins.complex": _complex,
    "builtins.bytes": _bytes,
    "_codecs.encode": _encode,
    **{f"torch.{dtype}": None for dtype in DTYPES},
    **{
        f"{where}.{kind}": None
        for kind in _STORAGES
        for where in ("torch", "torch.cuda", "torch.storage")
    },
}
"""Every name that may stand in a checkpoint; None for those that only stand there."""
