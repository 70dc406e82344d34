"""What the shell may complete: checkpoints on disk, and the paths inside one."""

from __future__ import annotations

import os

import typer


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


def complete_leaf(context: typer.Context, incomplete: str) -> list[str]:
    """Paths inside the checkpoint that was named before; none if it cannot be opened."""
    from surgery_cli import surgery

    given = context.params
    checkpoint = next((given[n] for n in ("source", "checkpoint", "a") if given.get(n)), None)
    if not isinstance(checkpoint, str):
        return []
    return surgery.complete_path(checkpoint, incomplete)
