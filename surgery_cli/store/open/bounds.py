"""How many leaves a tree may have, and how long and deep their paths may be."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from surgery_cli.inputs.limits import LEAVES, NAME, NESTING
from surgery_cli.tree.paths import LeafPath


def check_paths(paths: Collection[LeafPath], place: Path) -> None:
    """Refuse the tree that stands at ``place`` if it has more than limits allow.

    Raises:
        CheckpointError: so.
    """
    LEAVES.check(len(paths), f"'{place}'")
    NESTING.check(max(map(len, paths), default=0), f"a leaf in '{place}'")
    longest = max((len(str(path)) for path in paths), default=0)
    NAME.check(longest, f"a leaf in '{place}'")
