"""What lies inside the checkpoints that a run reads: what links lead to elsewhere is copied, never shared."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def linked(directory: Path, files: Iterable[str]) -> list[str]:
    """Which of the files, relative to the directory, are symbolic links or lie in folders that are."""
    base = os.fspath(directory)
    folders = {"": False}

    def in_link(folder: str) -> bool:
        if folder not in folders:
            folders[folder] = os.path.islink(f"{base}/{folder}") or in_link(os.path.dirname(folder))
        return folders[folder]

    return [f for f in files if os.path.islink(f"{base}/{f}") or in_link(os.path.dirname(f))]


class Boundary:
    """The files and directories that a run reads, ``homes``, by their real paths."""

    def __init__(self, homes: Iterable[Path]) -> None:
        self._homes = tuple({os.path.realpath(home) for home in homes})
        self._parents: dict[Path, str] = {}
        """The real paths of folders, each looked up once: a store may have 100,000 files."""

    def real(self, path: Path) -> str:
        """The real path of a file."""
        parent = self._parents.get(path.parent)
        if parent is None:
            parent = self._parents[path.parent] = os.path.realpath(path.parent)
        return os.path.realpath(path) if path.is_symlink() else f"{parent}/{path.name}"

    def holds(self, path: Path) -> bool:
        """False if a link leads from ``path``, or from a folder above it, to a file of somebody else."""
        real = self.real(path)
        return any(real == home or real.startswith(f"{home}/") for home in self._homes)

    def outside(self, directory: Path, files: Iterable[str], links: Iterable[str]) -> list[str]:
        """Which of the ``files`` of a directory, of which ``links`` are reached by links, lie elsewhere."""
        candidates = links if self.holds(directory / "_") else files
        return [file for file in candidates if not self.holds(directory / file)]
