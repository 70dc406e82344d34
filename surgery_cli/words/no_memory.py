"""How the system, Python and libraries say that there is no memory."""

from __future__ import annotations

import re
from typing import Final

_NO_MEMORY: Final = re.compile(
    "Cannot allocate memory|Out of memory|failed to map segment|can't start new thread|RESOURCE_EXHAUSTED|bad_alloc"
)
"""How libraries say that the system gives no memory, where they raise no MemoryError."""


def is_of_memory(error: BaseException) -> bool:
    """True for the error of a library, or of Python itself, to which the system gave no memory."""
    return isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)) is not None
