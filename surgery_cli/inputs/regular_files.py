"""Only regular files are read: a pipe or a device would hang, or never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from surgery_cli.errors import CheckpointError, SurgeryError

_KINDS = (
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def special_kind(mode: int) -> str | None:
    """What a thing of that mode is, in words, if it is neither a file nor a directory.

    >>> special_kind(0o010644), special_kind(0o100644)
    ('a named pipe (FIFO)', None)
    """
    return next((words for is_kind, words in _KINDS if is_kind(mode)), None)


def refuse_special(
    path: Path, refusal: type[SurgeryError] = CheckpointError, **details: Any
) -> None:
    """Refuse to read what is neither a file nor a directory; what is not there is let be.

    Raises:
        refusal: ``path``, or what it is a link to, is a pipe, a socket or a device; ``details`` go into the problem.
    """
    try:
        kind = special_kind(path.stat().st_mode)
    except (OSError, ValueError):
        return
    if kind is None:
        return
    real = os.path.realpath(path)
    leads = f"; it is a link to '{real}'" if path.is_symlink() else ""
    raise refusal(
        f"'{path}' is {kind}, not a file",
        why=f"reading it could hang or never end{leads}",
        fix="put the file itself there, or remove it",
        **details,
    )
