"""What the system or TensorStore says when writing fails, in the words that a person needs."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from surgery_cli.errors import WriteError

_SYSTEM_REASON: Final = re.compile(r": ([^:\"]+?) \[os_error_code='(\d+)'\]")
"""How TensorStore ends what the system told it; files and its whole spec stand around it."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def write_errors(name: str) -> Iterator[None]:
    """TensorStore reports whatever fails in writing, a full disk among it, as a ValueError.

    Raises:
        WriteError: what is done inside failed; ``name`` says what was to be written.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise write_failed(name, error) from error


def write_failed(name: str, error: Exception) -> WriteError:
    """The error for what the system did not let be written."""
    why, number = _reason(error)
    cause = "mend the cause"
    if number in _NO_ROOM:
        cause = "make room (`df -h`; for files `df -i`)"
    return WriteError(
        f"writing '{name}' failed",
        why=why,
        fix=f"nothing was left behind; {cause} and run the command again",
    )


def _reason(error: Exception) -> tuple[str, int | None]:
    """The system's own words and its number, if they show; else the first line of the message."""
    if isinstance(error, OSError):
        file = f": '{error.filename}'" if error.filename else ""
        return f"{error.strerror or error}{file}", error.errno
    found = _SYSTEM_REASON.search(str(error))
    if found is not None:
        return found[1], int(found[2])
    return str(error).split("\n", 1)[0].split(" [tensorstore_spec=", 1)[0][:300], None
