"""What the system or TensorStore says when writing fails, in the words that a person needs."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from surgery_cli.errors import WriteError
from surgery_cli.words.advice import NOTHING_LEFT, worded

_NUMBER: Final = re.compile(r"\[os_error_code='(\d+)'")
"""The system's number for an error, among what TensorStore adds to it in brackets, its whole spec first."""

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
        fix=worded("{}; {} and run the command again", NOTHING_LEFT, cause),
    )


def _reason(error: Exception) -> tuple[str, int | None]:
    """The system's own words and its number, if they show; else the first line of the message."""
    if isinstance(error, OSError):
        file = f": '{error.filename}'" if error.filename else ""
        return f"{error.strerror or error}{file}", error.errno
    text = str(error).split("\n", 1)[0].split(" [", 1)[0]
    number = _NUMBER.search(str(error))
    if number is not None:
        return text.rsplit(": ", 1)[-1], int(number[1])
    return text[:300], None
