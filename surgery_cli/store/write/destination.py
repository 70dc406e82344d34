"""Whether a destination may be written, asked before any work."""

from __future__ import annotations

import os
from pathlib import Path

from surgery_cli.errors import DestinationError
from surgery_cli.store.filesystem.listing import is_leftover, unfinished_name
from surgery_cli.store.write.owners import OWNER_FILE


def check_destination(destination: Path, source: Path, *, force: bool) -> None:
    """Refuse a destination that must not be written, before any work.

    ``source`` is everything that must not change: the root that holds the step which is read.

    Raises:
        DestinationError: it exists (without ``force``), lies in the source, is the source, or holds it.
    """
    real, origin = real_path(destination), source.resolve()
    if unfinished_name(real.name) or is_leftover(real.name) or real.name == OWNER_FILE:
        raise DestinationError(
            f"'{destination}' has the name of an unfinished save",
            why="readers, this program among them, refuse such names",
            fix="name another directory",
        )
    if real == origin:
        raise DestinationError(
            f"'{destination}' is the source itself",
            why="the source is never written to",
            fix="name another directory",
        )
    if origin in real.parents:
        raise DestinationError(
            f"'{destination}' lies inside the source '{origin}'",
            why="the source is never written to",
            fix="name a directory outside of it",
        )
    if real in origin.parents:
        raise DestinationError(
            f"'{destination}' holds the source '{origin}'",
            why="replacing it would remove the source",
            fix="name another directory",
        )
    if os.path.lexists(destination) and not force:
        raise already_there(destination)
    parent = real.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise DestinationError(
            f"'{destination}' cannot be made", why=f"'{parent}' is not a directory"
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise DestinationError(
            f"'{destination}' cannot be made",
            why=f"'{parent}' is not writable",
            fix="name a directory that you may write to",
        )


def already_there(destination: Path) -> DestinationError:
    return DestinationError(
        f"the destination '{destination}' exists",
        why="nothing is overwritten unless that is asked for",
        fix="name another, or add `--force` to replace it once the new one is complete",
    )


def real_path(path: Path) -> Path:
    """The path with its parents' symbolic links followed, its own not."""
    absolute = Path(os.path.abspath(path))
    return absolute.parent.resolve() / absolute.name
