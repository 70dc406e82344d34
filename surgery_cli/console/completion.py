"""What the shell may complete of a checkpoint's address."""

from __future__ import annotations

import os


def complete_checkpoint(incomplete: str) -> list[str]:
    """Directories and files that continue what was typed; directories end with a slash."""
    folder, _, start = incomplete.rpartition("/")
    base = "/" if incomplete.startswith("/") and not folder else folder
    try:
        with os.scandir(os.path.expanduser(base) or ".") as entries:  # noqa: PTH111 - text stays text
            found = [(e.name, e.is_dir()) for e in entries if e.name.startswith(start)]
    except OSError:
        return []
    prefix = incomplete[: len(incomplete) - len(start)]
    return [
        f"{prefix}{name}{'/' if is_folder else ''}"
        for name, is_folder in sorted(found)
        if start.startswith(".") or not name.startswith(".")
    ]
