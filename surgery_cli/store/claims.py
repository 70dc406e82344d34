"""What metadata claims, held against the memory that there is, before any of it is asked for."""

from __future__ import annotations

import math
import os
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.store.zarr import ArrayDocument
from surgery_cli.tree.specs import item_bytes

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_bytes() -> int:
    """Memory that this process can have: what is free or can be freed, within the limit of its container."""
    found = [_free_bytes()]
    for name in _LIMITS:
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)


def _free_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # no Linux: all memory that the machine has
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
    available = available_bytes()
    if needed > available:
        what = f"a chunk of {chunk:,}" if chunk == needed else f"{needed:,}"
        raise CheckpointError(
            f"the stored array '{name}' in '{directory}' does not fit into memory",
            why=f"its metadata declares {what} bytes, {available:,} are free",
            fix="if that size is meant, run where there is more memory; else the metadata is damaged",
        )


_SMALL = 64 << 20
"""Less than this is never worth a look at the machine."""
