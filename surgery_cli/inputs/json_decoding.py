"""JSON that strangers wrote: what cannot be decoded is one kind of error, however odd it is."""

from __future__ import annotations

import json
from typing import Any, TypeVar, overload

import msgspec

Kind = TypeVar("Kind")


@overload
def decode_json(raw: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode_json(raw: bytes | str | msgspec.Raw, type: type[Kind]) -> Kind: ...
def decode_json(raw: bytes | str | msgspec.Raw, type: Any = Any) -> Any:
    """What the JSON says, as a ``type``.

    Raises:
        msgspec.DecodeError: it is none (not UTF-8, nested without end), or of another type.
    """
    try:
        return msgspec.json.decode(raw, type=type)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error}") from None


@overload
def decode_python_json(raw: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode_python_json(raw: bytes | str | msgspec.Raw, type: type[Kind]) -> Kind: ...
def decode_python_json(raw: bytes | str | msgspec.Raw, type: Any = Any) -> Any:
    """As ``decode_json``, of what Python's own module writes and reads: `NaN` and `Infinity` are numbers there.

    So metrics of a run that diverged stand in a checkpoint. A ``msgspec.Raw`` that holds one of them is spelled anew.
    """
    try:
        return decode_json(raw, type)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        text = bytes(raw) if isinstance(raw, msgspec.Raw) else raw
        if not any(name in text for name in _names(text)):
            raise
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if value is None:
            raise
    if type == dict[str, msgspec.Raw] and isinstance(value, dict):
        return {key: msgspec.Raw(json.dumps(part).encode()) for key, part in value.items()}
    return msgspec.convert(value, type)


def _names(text: bytes | str) -> tuple[Any, Any]:
    return ("NaN", "Infinity") if isinstance(text, str) else (b"NaN", b"Infinity")
