"""How this process keeps memory, and when it looks for garbage."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
_ALLOCATIONS: Final = 200_000


def share_arenas() -> None:
    """Let all threads allocate from two arenas instead of one each, where the C library is glibc.

    An arena keeps what its threads have freed. Blocks of tensors pass through a dozen threads (ours, TensorStore's),
    and each would keep a block or two: 200 MB that `--memory` does not know of. The fewer, the faster, too.
    """
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
    except (OSError, AttributeError):
        return  # another C library; it has no arenas to share


def collect_rarely() -> None:
    """Look for reference cycles less often than Python does by default.

    A tree of 100,000 leaves is a million objects without any cycle; walking them again and again costs more time than
    half of what is done with them.
    """
    gc.set_threshold(_ALLOCATIONS, 20, 100)
