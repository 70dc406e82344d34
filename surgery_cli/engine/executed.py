"""What a run did: what it has computed is read back and held against this."""

from __future__ import annotations

import msgspec

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.tree.paths import LeafPath


class Executed(msgspec.Struct):
    """Digests of the leaves whose values were written, and bytes of these values."""

    digests: dict[LeafPath, LeafDigest] = {}
    parts: dict[LeafPath, list[tuple[Window, bytes]]] = {}
    """Of leaves whose other chunks are taken as they are: what was written, with the digest of each block."""
    written_bytes: int = 0
    taken_up_bytes: int = 0
    """Of values that an earlier run has written."""
