"""Which inputs of a probe's batch stand in a file: `batch.npz`, `x=batch.npz:images`."""

from __future__ import annotations

import re
from typing import Final

from surgery_cli.inputs.addresses import named_address

BATCH_FILE: Final = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*(?:\.\w+)*)=)?(?P<file>.+\.np[yz])(?::(?P<entry>.+))?"
)
"""The form of such an input, without what is percent-encoded."""


def batch_file(text: str) -> str | None:
    """The file that an input is read from; None for one that is drawn.

    >>> batch_file("x=batch.npz:images"), batch_file("float32[8,28,28,1]")
    ('batch.npz', None)
    """
    found = BATCH_FILE.fullmatch(named_address(text))
    return None if found is None else found["file"]
