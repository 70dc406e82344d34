"""What is said where something else writes to a destination while a run is under way."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from surgery_cli.errors import DestinationError
from surgery_cli.words.advice import NOTHING_LEFT, worded
from surgery_cli.words.lists import quoted


def written_meanwhile(
    destination: Path, files: Collection[str | Path], *, is_gone: bool = False
) -> DestinationError:
    """The error for files at a destination that neither stood there when the run began, nor are its own; ``is_gone``:
    they were one or the other, and something has removed them.
    """
    found = quoted(list(map(str, files)), 3, word="and")
    return DestinationError(
        f"'{destination}' was written to by something else while this run was under way",
        why=f"{found} was removed"
        if is_gone
        else f"{found} stood there otherwise when it began, or not at all",
        fix=worded("{}; run the command again once nothing writes there", NOTHING_LEFT),
    )
