"""What a run did: what it has computed is read back and held against this."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.digests import Digester, LeafDigest
from surgery_cli.engine.grid import windows
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Executed(msgspec.Struct):
    """Digests of the leaves whose values were written, and bytes of these values."""

    digests: dict[LeafPath, LeafDigest] = {}
    parts: dict[LeafPath, list[tuple[Window, bytes]]] = {}
    """Of leaves whose other chunks are taken as they are: what was written, with the digest of each block."""
    cut: dict[LeafPath, Digester] = {}
    """Of leaves that several processes write: what this one has written."""
    written_bytes: int = 0
    taken_up_bytes: int = 0
    """Of values that an earlier run has written."""

    def join(self, other: Executed, specs: Mapping[LeafPath, LeafSpec]) -> None:
        """Add what another process did; a leaf of which every block is there gets its digest."""
        self.digests |= other.digests
        for path, blocks in other.parts.items():
            self.parts.setdefault(path, []).extend(blocks)
        for path, cut in other.cut.items():
            spec, grid = specs[path], cut.grid
            digester = self.cut.setdefault(path, Digester(spec, grid))
            digester.blocks.update(cut.blocks)
            if digester.is_complete(sum(1 for _ in windows(spec.shape, grid))):
                self.digests[path] = digester.result()
                del self.cut[path]
        self.written_bytes += other.written_bytes

    def without(self, paths: AbstractSet[LeafPath]) -> Executed:
        """The same of all other leaves."""
        digests = {path: one for path, one in self.digests.items() if path not in paths}
        parts = {path: one for path, one in self.parts.items() if path not in paths}
        return msgspec.structs.replace(self, digests=digests, parts=parts)
