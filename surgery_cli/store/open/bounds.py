"""How many leaves a tree may have, and how long and deep their paths may be."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.limits import LEAVES, NAME, NESTING
from surgery_cli.tree.paths import LeafPath


def refuse_foreign_names(names: Iterable[str], place: Path) -> None:
    """Refuse names that are all that tells a tree and were no UTF-8 where they stand: no leaf can be called so.

    Raises:
        CheckpointError: there is one.
    """
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = name.encode(errors="backslashreplace").decode()
            raise CheckpointError(
                f"an array in '{place}' has the name '{shown}', which is not UTF-8",
                why="nothing but the names of arrays says what the tree is, and Orbax writes them in UTF-8",
                fix="its database is damaged, or written by another program",
            ) from None


def check_paths(paths: Collection[LeafPath], place: Path) -> None:
    """Refuse the tree that stands at ``place`` if it has more than limits allow.

    Raises:
        CheckpointError: so.
    """
    LEAVES.check(len(paths), f"'{place}'")
    NESTING.check(max(map(len, paths), default=0), f"a leaf in '{place}'")
    longest = max((len(path.text) for path in paths), default=0)
    NAME.check(longest, f"a leaf in '{place}'")
