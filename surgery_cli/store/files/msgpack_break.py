"""Msgpack files that are damaged: the leaves that stand before the first place that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from surgery_cli.errors import CheckpointError, LimitError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_scan import CHUNKED, Scan, Scanner
from surgery_cli.tree.paths import LeafPath


class Found(NamedTuple):
    """The leaves that read, and which of them stand ``behind`` the first place that shows damage.

    ``lost`` are those that do not, each with why; ``why`` is what is wrong with the file, '' if nothing is.
    """

    scan: Scan
    behind: set[LeafPath]
    lost: dict[LeafPath, str]
    why: str


def scan_before_break(path: Path) -> Found:
    """What a file still says, up to where it does not read.

    The leaf right before a place that shows damage is lost: it may have taken in bytes that stood behind its own.
    """
    with filesystem.reader(path) as file:
        scanner = Scanner(path, file)
        broken, why = LeafPath(), ""
        try:
            scanner.scan()
        except (LimitError, UnseenError):
            raise
        except CheckpointError as error:
            broken, why = scanner.within, error.problems[0].why
    scan = scanner.found
    behind: set[LeafPath] = set()
    lost = {broken: why} if why else {}
    if scan.oddities:
        first = min(scan.oddities)
        why = f"{first.why} (at byte {first.at})"
        last = [path for path, leaf in scan.leaves.items() if leaf.stop <= first.at][-1:]
        lost |= dict.fromkeys(last, why)
        odd = [one.path for one in scan.oddities]
        kept = {path: leaf for path, leaf in scan.leaves.items() if not _is_in(path, odd)}
        behind = {path for path, leaf in kept.items() if leaf.stop > first.at}
        lost = {path: reason for path, reason in lost.items() if not _is_in(path, odd)}
        scan = scan._replace(leaves=kept)
    leaves = {path: leaf for path, leaf in scan.leaves.items() if path not in lost}
    return _without_parts(Found(scan._replace(leaves=leaves), behind, lost, why))


def _is_in(path: LeafPath, nodes: list[LeafPath]) -> bool:
    return any(path == node or path.is_below(node) for node in nodes)


def _without_parts(found: Found) -> Found:
    """The same without arrays in parts of which some are missing, which are lost as a whole."""
    leaves, lost = dict(found.scan.leaves), dict(found.lost)
    for part in [path for path in [*leaves, *lost] if CHUNKED in path]:
        owner = LeafPath(part[: part.index(CHUNKED)])
        why = lost.pop(part, "")
        leaves.pop(part, None)
        lost[owner] = why or lost.get(owner, "some of its parts are missing")
    return found._replace(scan=found.scan._replace(leaves=leaves), lost=lost)
