"""What has been built stands until it has its name: another program that cleans up may remove it at any moment."""

from __future__ import annotations

from pathlib import Path

from surgery_cli.errors import CheckpointError, LimitError, RemovedError
from surgery_cli.store import filesystem
from surgery_cli.words.advice import NOTHING_LEFT, worded
from surgery_cli.words.lists import quoted

_MEND = worded("{}; see what else removes files there and run the command again", NOTHING_LEFT)


def names_below(place: Path) -> frozenset[str]:
    """The path of every file at and below a place."""
    try:
        return frozenset(filesystem.files_below(place))
    except OSError:  # it is gone
        return frozenset()


def check_built(place: Path, built: frozenset[str]) -> None:
    """Of what was read back, every file still is there; a chunk that is not would be read as zeros.

    Raises:
        RemovedError: it is not.
    """
    if gone := sorted(built - names_below(place)):
        raise RemovedError(
            f"{quoted(gone, 3, word='and')} had been built, and was removed before it got its name",
            why="another program cleans up there, or removed what it took for a leftover",
            fix=_MEND,
        )


def raise_of_built(directory: Path, error: BaseException | None) -> None:
    """What does not read of a result that is being built is no damage of a checkpoint: the result is not written.

    ``directory`` is where it is built, and has a name that nothing else has.

    Raises:
        RemovedError: ``error`` is of that kind.
    """
    if not isinstance(error, CheckpointError) or isinstance(error, LimitError):
        return
    first = error.problems[0]
    if str(directory) in f"{first.what}{first.why}":
        raise RemovedError(
            f"what was built in '{directory}' does not read back",
            why=f"{first.what}: {first.why}" if first.why else first.what,
            fix=_MEND,
        ) from error
