"""Msgpack files that break off: the leaves that stand before the break."""

from __future__ import annotations

from pathlib import Path

from surgery_cli.errors import CheckpointError, LimitError
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_scan import CHUNKED, Scan, Scanner
from surgery_cli.tree.paths import LeafPath


def scan_before_break(path: Path) -> tuple[Scan, LeafPath, str]:
    """The leaves before the place at which a file breaks off, the one that stands there, and why it does not read.

    The last two are empty for a file that is whole.
    """
    with filesystem.reader(path) as file:
        scanner = Scanner(path, file)
        try:
            return scanner.scan(), LeafPath(), ""
        except LimitError:
            raise
        except CheckpointError as error:
            scan, broken = scanner.found, scanner.within
            parts = [
                p
                for p in scan.leaves
                if CHUNKED in p and broken.is_below(LeafPath(p[: p.index(CHUNKED)]))
            ]
            if parts:  # an array in parts, of which some are missing
                broken = LeafPath(parts[0][: parts[0].index(CHUNKED)])
                leaves = {p: leaf for p, leaf in scan.leaves.items() if not p.is_below(broken)}
                scan = scan._replace(leaves=leaves)
            return scan, broken, error.problems[0].why
