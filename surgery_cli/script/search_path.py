"""``sys.path`` as a file of the user's has it while it runs, and while a function of it runs later."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


class SearchPath:
    """The folders of a file, and what the file itself puts on ``sys.path``: a function may import when it is called."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._own = list(dict.fromkeys(folders))
        self._first: list[str] = []
        self._last: list[str] = []

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Have it on ``sys.path`` while the block runs, and note what the block adds before or behind all else."""
        before = sys.path[:]
        sys.path[:] = [*self._first, *self._own, *before, *self._last]
        try:
            yield
        finally:
            after, sys.path[:] = sys.path[:], before
            others = {*before} - {*self._own}
            start = next((n for n, entry in enumerate(after) if entry in others), len(after))
            known = {*before, *self._own}
            self._first = [entry for entry in after[:start] if entry not in known]
            known |= {*self._first}
            self._last = [entry for entry in after[start:] if entry not in known]

    def holds(self, path: Path) -> bool:
        """True for what stands below a folder that the file put there."""
        added = (Path(entry).resolve() for entry in (*self._first, *self._last) if entry)
        return any(path.is_relative_to(folder) for folder in added)
