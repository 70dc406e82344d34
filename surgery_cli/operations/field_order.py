"""The order in which users see the fields of a struct."""

from __future__ import annotations

import inspect
from functools import cache

import msgspec


@cache
def own_fields_first(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a struct: its own, then those of its base classes, from the nearest on."""
    declared = [inspect.get_annotations(base) for base in kind.__mro__]

    def height(field: msgspec.structs.FieldInfo) -> int:
        return next(n for n, names in enumerate(declared) if field.name in names)

    return tuple(sorted(msgspec.structs.fields(kind), key=height))
