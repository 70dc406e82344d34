"""What has been built stands until it has its name: another program that cleans up may remove it at any moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import TypeAlias

from surgery_cli.errors import (
    CheckpointError,
    LimitError,
    RemovedError,
    ServiceFails,
)
from surgery_cli.inputs.buckets import Replaced, ServiceRefusal, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.local_disk import own_status
from surgery_cli.store.filesystem.meanwhile import written_meanwhile
from surgery_cli.store.filesystem.names import is_record
from surgery_cli.store.filesystem.protocol import Status
from surgery_cli.words.advice import NOTHING_LEFT, worded
from surgery_cli.words.lists import quoted

_MEND = worded("{}; see what else removes files there and run the command again", NOTHING_LEFT)


def names_below(place: Path) -> frozenset[str]:
    """The path of every file at and below a place."""
    try:
        return frozenset(filesystem.files_below(place))
    except ServiceRefusal:
        raise
    except OSError:  # it is gone
        return frozenset()


def may_stand(place: Path) -> bool:
    """False only where it is known that nothing stands there."""
    filesystem.forget(place)
    try:
        return filesystem.exists(place)
    except OSError:
        return True


def check_built(place: Path, built: frozenset[str]) -> None:
    """Of what was read back, every file still is there; a chunk that is not would be read as zeros.

    Raises:
        RemovedError: it is not.
    """
    if gone := sorted(built - names_below(place)):
        raise _removed(quoted(gone, 3, word="and"))


def _removed(files: str) -> RemovedError:
    return RemovedError(
        f"{files} had been built, and was removed before it got its name",
        why="another program cleans up there, or removed what it took for a leftover",
        fix=_MEND,
    )


Stood: TypeAlias = Mapping[str, tuple[int, ...]]
"""What is at and below a place, by what follows that in its path, and what tells each from what comes later.

Of a folder, which has none in a bucket, that it is this one: what is in it is told by itself, and changes its time.
"""


def what_stands(place: Path) -> Stood:
    """What is there to be replaced, as it was looked at last: links themselves, which go without what they lead to."""
    found: Iterable[tuple[str, Status]]
    if filesystem.renames(place):
        found = _on_disk(place)
    else:
        found = ((file, filesystem.status(file)) for file in names_below(place))
    begin = len(str(place))  # the same place may be told by a path from elsewhere
    return {path[begin:]: told(st) for path, st in found}


def told(status: Status) -> tuple[int, ...]:
    """What tells a folder, a link or a file from what comes in its place."""
    if S_ISDIR(status.st_mode):
        return (status.st_ino,)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _on_disk(place: Path) -> Iterator[tuple[str, Status]]:
    """A place and all below it, by the look of this moment."""
    waiting = [str(place)]
    while waiting:
        path = waiting.pop()
        with suppress(FileNotFoundError, NotADirectoryError):  # it has gone since it was listed
            status = own_status(path)
            yield path, status
            if S_ISDIR(status.st_mode):
                waiting += (entry.place for entry in filesystem.entries(path))


def check_versions(place: Path, built: Stood) -> None:
    """As ``check_built``, of files that are others by now, or have come, as well; but for a record, which comes last.

    Raises:
        RemovedError: so.
    """
    now = what_stands(place) if built else {}
    unlike = {name for name, _ in built.items() ^ now.items() if not is_record(Path(name).name)}
    if not unlike:
        return
    gone = [path_at(f"{place}{name}") for name in unlike & built.keys() - now.keys()]
    raise written_to([path_at(f"{place}{name}") for name in unlike], gone)


def written_to(unlike: Collection[Path], gone: Collection[Path]) -> RemovedError:
    """The error for files of a new checkpoint that are gone, or others than were read back, or have come since."""
    files = quoted([str(file) for file in sorted(unlike)], 3, word="and")
    if gone:
        return _removed(files)
    return RemovedError(
        f"{files} was written to by something else while the new checkpoint was built",
        why="it is not what was read back",
        fix=worded("{}; run the command again once nothing writes there", NOTHING_LEFT),
    )


def check_replaced(destination: Path, stood: Stood, at: Path | None = None) -> None:
    """What is about to be replaced is what stood there when the run began, or gone: no later save, nor a part of one.

    ``at``: where it is by now, if it was moved.

    Raises:
        DestinationError: something else was written there since.
    """
    now = what_stands(destination if at is None else at)
    if now and (others := sorted({name for name, _ in now.items() ^ stood.items()})):
        raise written_meanwhile(destination, [f"{destination}{name}" for name in others])


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def raise_of_built(directory: Path, error: BaseException | None) -> None:
    """What does not read of a result that is being built is no damage of a checkpoint: the result is not written.

    ``directory`` is where it is built, and has a name that nothing else has.

    Raises:
        RemovedError: ``error`` is of that kind, or something else was put in the place of a file of it.
    """
    for one in _with_causes(error) if isinstance(error, ServiceFails | OSError) else ():
        if isinstance(one, Replaced) and path_at(one.filename).is_relative_to(directory):
            raise written_to([path_at(one.filename)], []) from error
    if not isinstance(error, CheckpointError) or isinstance(error, LimitError | ServiceFails):
        return
    first = error.problems[0]
    if re.search(rf"{re.escape(str(directory))}[/']", f"{first.what}{first.why}"):
        raise RemovedError(
            f"what was built in '{directory}' does not read back",
            why=f"{first.what}: {first.why}" if first.why else first.what,
            fix=_MEND,
        ) from error
