"""Orbax's own text for how an array is spread over devices, as far as axes are concerned."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

_NAMED = "NamedSharding"


def of_rearranged(text: str, origins: Sequence[int | None], shape: Sequence[int]) -> str:
    """The sharding of an array of ``shape`` whose axes were those of another: ``origins`` of each, None if it is new.

    An axis keeps its mesh axes where their devices still divide it; else it is not split. What is no such text, or
    knows no axes, is left to whoever writes it.

    >>> mesh = '{"sharding_type": "NamedSharding", "shape": [2], "axis_names": ["x"], "partition_spec": ["x", null]}'
    >>> json.loads(of_rearranged(mesh, (1, 0), (3, 4)))["partition_spec"]
    [None, 'x']
    >>> json.loads(of_rearranged(mesh, (0, 1), (5, 3)))["partition_spec"]
    [None, None]
    """
    try:
        fields: dict[str, Any] = msgspec.json.decode(text)
        if fields["sharding_type"] != _NAMED:
            return text
        sizes = dict(zip(fields["axis_names"], fields["shape"], strict=True))
        old = fields["partition_spec"]
        parts = [old[n] if n is not None and n < len(old) else None for n in origins]
        counts = [math.prod(sizes[name] for name in _names(part)) for part in parts]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return text
    fits = [n % count == 0 for n, count in zip(shape, counts, strict=True)]
    fields["partition_spec"] = [p if ok else None for p, ok in zip(parts, fits, strict=True)]
    return json.dumps(fields)


def _names(part: Any) -> list[str]:
    """The mesh axes over which one axis of an array is split."""
    return list(part) if isinstance(part, list) else [] if part is None else [part]
