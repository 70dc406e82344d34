"""JSON that strangers wrote: what cannot be decoded is one kind of error, however odd it is."""

from __future__ import annotations

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
