"""What the system or TensorStore says when writing fails, in the words that a person needs."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from surgery_cli.errors import RemovedError, WriteError
from surgery_cli.store.filesystem.driver_credentials import mend_of
from surgery_cli.words.advice import NOTHING_LEFT, worded

_NUMBER: Final = re.compile(r"\[os_error_code='(\d+)'")
"""The system's number for an error, among what TensorStore adds to it in brackets, its whole spec first."""

_ADDED: Final = re.compile(r" \[\w[\w ]*='")
"""How that begins (`source locations` of older releases, too); a range of bytes stands in brackets as well."""

_MENDS: Final = {
    errno.ENOSPC: "make room (`df -h`; for files `df -i`)",
    errno.EDQUOT: "make room (`quota`)",
    errno.EFBIG: "allow larger files (`ulimit -f`)",
    errno.EROFS: "name a place that can be written to",
}


def is_of_writing(error: OSError) -> bool:
    """True for what the system says of no file that is read, though copying and linking name both."""
    is_of_two = error.filename2 is not None and error.filename is not None
    return error.errno in _MENDS or (is_of_two and _can_be_read(error.filename))


def _can_be_read(file: str | bytes) -> bool:
    """Whether the system gives all of a file: of two, it does not say which of them failed."""
    try:
        with open(file, "rb", buffering=0) as reader:
            while reader.read(1 << 20):
                pass
    except OSError:
        return False
    return True


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
    is_gone = number == errno.ENOENT
    cause = (
        "see what else removes files there"
        if is_gone
        else _MENDS.get(number or 0) or mend_of(why) or "mend the cause"
    )
    return (RemovedError if is_gone else WriteError)(
        f"writing '{name}' failed",
        why=why,
        fix=worded("{}; {} and run the command again", NOTHING_LEFT, cause),
    )


def _reason(error: Exception) -> tuple[str, int | None]:
    """The system's own words and its number, if they show; else the first line of the message."""
    if isinstance(error, OSError):
        name = error.filename2 or error.filename
        file = f": '{os.fsdecode(name)}'" if name else ""
        return f"{error.strerror or error}{file}", error.errno
    text = _ADDED.split(str(error).split("\n", 1)[0], maxsplit=1)[0]
    number = _NUMBER.search(str(error))
    if number is not None:
        return text.rsplit(": ", 1)[-1], int(number[1])
    return text[:300], None
