"""What metadata claims, held against the memory that there is, before any of it is asked for."""

from __future__ import annotations

import math
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.store.filesystem.memory_limits import room
from surgery_cli.store.orbax.zarr import ArrayDocument
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.words.quantities import byte_text


def check_claim(
    document: ArrayDocument, name: str, directory: Path, block: tuple[int, ...]
) -> None:
    """Refuse to read a block for which there is no memory: its values, or one chunk of them decoded.

    A few hundred bytes of metadata can declare a chunk of a terabyte, stored or not.

    Raises:
        CheckpointError: the declared sizes are larger than the memory that there is.
    """
    width = item_bytes(document.dtype)
    chunk = math.prod(document.chunk_shape) * width
    needed = max(math.prod(block) * width, chunk)
    if needed < _SMALL:
        return
    there = room()
    if needed > there.bytes:
        what = f"a chunk of {byte_text(chunk)}" if chunk == needed else byte_text(needed)
        raise CheckpointError(
            f"the stored array '{name}' in '{directory}' does not fit into memory",
            why=f"its metadata declares {what}, {byte_text(there.bytes)} {there.bound}",
            fix="if that size is meant, run where there is more memory; else the metadata is damaged",
        )


_SMALL = 64 << 20
"""Less than this is never worth a look at the machine."""
