"""How the C library is asked to keep what is freed; it is asked before anything else is loaded."""

from typing import Final

LARGEST_REUSED_BYTES: Final = 32 << 20
"""The largest that glibc keeps for reuse; what is larger goes back to the system when it is freed."""
