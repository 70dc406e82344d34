"""Shapes of stored chunks: even parts of what one device holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from surgery_cli.errors import PlanError
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text, counted

SMALLEST_BYTES: Final = 1 << 20
"""Chunks of less are worth joining: each of them is a read, whatever it holds."""

_FAR_BELOW: Final = 16
"""Where even parts are so many times smaller than what is asked for, the next larger ones are taken."""


@lru_cache(maxsize=4096)
def even_parts(unit: tuple[int, ...], item_bytes: int, limit_bytes: int) -> tuple[int, ...]:
    """A large chunk within ``limit_bytes`` of which a whole number makes up ``unit``.

    It is cut along the first axes, whose parts lie together, as long as it is no smaller than half of the largest one
    for that. Where all within the limit are small, because axes have no such divisors, it is the next larger one:
    chunks of a few kilobytes cost more than large ones.

    >>> even_parts((8192, 8192), 4, 64 << 20), even_parts((50257, 768), 4, 64 << 20), even_parts((1009, 1013), 4, 99999)
    ((2048, 8192), (50257, 256), (1009, 1013))
    """
    size = math.prod(unit) * item_bytes
    if size <= limit_bytes or not size:
        return unit
    cuts: dict[int, tuple[int, ...]] = {1: ()}
    for length in unit:
        longer: dict[int, tuple[int, ...]] = {}
        for count, cut in cuts.items():
            for part in _divisors(length):
                one = (*cut, part)
                longer[count * part] = max(longer.get(count * part, one), one)
        cuts = longer
    enough = min(count for count in cuts if size // count <= limit_bytes or count == max(cuts))
    if size // enough * _FAR_BELOW < limit_bytes:
        enough = max(count for count in cuts if count < enough)
        return tuple(n // part for n, part in zip(unit, cuts[enough], strict=True))
    near = [cut for count, cut in cuts.items() if enough <= count <= 2 * enough]
    best = min(near, key=lambda cut: (cut[::-1], math.prod(cut)))
    return tuple(n // part for n, part in zip(unit, best, strict=True))


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return tuple(dict.fromkeys([*small, *(number // n for n in reversed(small))]))


def divides(chunk: tuple[int, ...], unit: tuple[int, ...]) -> bool:
    """True if a whole number of chunks makes up ``unit``, along every axis."""
    return all(c and n % c == 0 for c, n in zip(chunk, unit, strict=True))


_KIB: Final = 1 << 10
_TINY_BYTES: Final = 64 << 10
_MOST_TINY: Final = 10_000
"""So many chunks of less than 64 KiB are a mistake in a unit, and no layout that anybody wants to read."""


def tiny_chunks(specs: Mapping[LeafPath, LeafSpec], limit_bytes: int) -> list[Remark]:
    """What is to be said of a limit under which leaves come in chunks that are nothing beside what each costs.

    Raises:
        PlanError: they come in thousands, with how many there would be.
    """
    tiny: dict[LeafPath, int] = {}
    for path, spec in specs.items():
        chunk = spec.chunk_shape or spec.shape
        if math.prod(chunk) * item_bytes(spec.dtype) < _TINY_BYTES:
            grid = zip(spec.shape, chunk, strict=True)
            count = math.prod(-(-size // step) for size, step in grid)
            tiny |= {path: count} if count > 1 else {}
    total = sum(tiny.values())
    if not tiny:
        return []
    if total <= _MOST_TINY:
        leaves = "1 leaf comes" if len(tiny) == 1 else f"{len(tiny):,} leaves come"
        said = f"{leaves} in {total:,} chunks of less than {byte_text(_TINY_BYTES)}"
        return [
            Remark(
                DocsPage.RESHARD,
                f"{said}: each is stored and read by itself, in a bucket by a request",
            )
        ]
    most = max(tiny, key=lambda path: tiny[path])
    raise PlanError(
        f"chunks of {byte_text(limit_bytes)} would be {total:,}",
        why=f"each is stored and read by itself, in a bucket by a request; '{most}' alone would be"
        f" {counted(tiny[most], 'chunk')}",
        fix=worded("a number without a unit counts bytes: {chunk_bytes: {}MiB}?", limit_bytes)
        if limit_bytes < _KIB
        else worded("e.g. {chunk_bytes: 64MiB}"),
        field="chunk_bytes",
    )
