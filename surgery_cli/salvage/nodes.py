"""B-tree nodes and manifests of OCDBT databases, from their bytes alone: each says how long it is, and has a CRC-32C.

Source: TensorStore's description of the format of its `ocdbt` driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from surgery_cli.inputs.limits import NODE
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.holes import data_ranges
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.orbax.arrays import MEMORY, in_memory

_NODE: Final = bytes.fromhex("0cdb20de")
_HEAD: Final = len(_NODE) + 8
_STEP: Final = 64 << 20


class Node(NamedTuple):
    """Where a node lies: in a file of a database, the folder that its places are relative to."""

    database: Path
    file: str
    offset: int
    length: int

    @property
    def location(self) -> str:
        """As TensorStore names it."""
        return f"btreenode::{self.file}:{self.offset}:{self.length}"


def scan(
    database: Path, file: str, searched: Callable[[int], None] = lambda _: None
) -> Iterator[Node]:
    """Where a node may begin in a file: its mark, and a length that fits in; ``searched`` is told of so many bytes."""
    size = filesystem.size(database / file)
    for first, stop in data_ranges(database / file):
        for start in range(first, stop, _STEP):
            step = min(_STEP, stop - start)
            block = filesystem.read(database / file, start, step + _HEAD)
            at = block.find(_NODE)
            while 0 <= at < step:
                length = int.from_bytes(block[at + len(_NODE) : at + _HEAD], "little")
                if _HEAD < length <= min(size - start - at, NODE.most):
                    yield Node(database, file, start + at, length)
                at = block.find(_NODE, at + 1)
            searched(step)


def read_node(node: Node) -> dict[str, Any] | None:
    """The content of a node; None if it is none, or damaged: its checksum tells."""
    import tensorstore as ts

    try:
        raw = filesystem.read(node.database / node.file, node.offset, node.length)
        return dict(ts.ocdbt.dump(_alone("node", raw), f"btreenode::node:0:{len(raw)}").result())
    except (ValueError, OSError):
        return None


def read_manifest(file: Path) -> dict[str, Any] | None:
    """The content of a manifest, under whatever name; None if it is none, or damaged."""
    import tensorstore as ts

    try:
        return dict(ts.ocdbt.dump(_alone("manifest.ocdbt", read_small(file))).result())
    except (ValueError, OSError):
        return None


def _alone(name: str, raw: bytes) -> Any:
    """A store in memory that holds one value."""
    import tensorstore as ts

    return ts.KvStore.open(MEMORY, context=in_memory({name: raw})).result()
