"""Who may read what does not let this user in, in words."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def barrier_before(path: Path) -> Path:
    """The directory around ``path`` that this user may not enter, the outermost; ``path`` itself if there is none."""
    around = reversed(Path(os.path.abspath(path)).parents)
    return next((folder for folder in around if not os.access(folder, os.X_OK)), path)


def who_may(path: Path) -> str:
    """Whose a file or directory is, what it allows, and who is running this."""
    try:
        status = os.stat(path)
    except OSError:
        return f"this is run by {_user(os.geteuid())}"
    owner, allowed = _user(status.st_uid), stat.filemode(status.st_mode)
    return f"it belongs to {owner} and allows {allowed}; this is run by {_user(os.geteuid())}"


def _user(number: int) -> str:
    """A user's name, or number where the system knows no name."""
    try:
        import pwd

        return f"'{pwd.getpwuid(number).pw_name}'"
    except (ImportError, KeyError):
        return f"user {number}"
