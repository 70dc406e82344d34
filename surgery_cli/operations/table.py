"""The one table that lists the operations; everything else (plans, commands, docs, schema) is read from it."""

from __future__ import annotations

from functools import cache

from surgery_cli.operations.base import Operation


@cache
def operations() -> dict[str, type[Operation]]:
    """Every operation by its name, in the order in which they are documented."""
    listed: list[type[Operation]] = []
    return {str(kind.__struct_config__.tag): kind for kind in listed}
