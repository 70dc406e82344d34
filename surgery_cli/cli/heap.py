"""How this process keeps freed memory."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2


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
