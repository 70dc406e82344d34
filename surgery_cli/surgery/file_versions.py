"""What tells the files that a run reads from others of the same names and sizes, of which fingerprints know nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.files.fingerprints import of_versions
from surgery_cli.store.open.checkpoint import Checkpoint


def file_versions(sources: Mapping[str, Checkpoint | ArrayFile]) -> dict[str, str]:
    """By name, of each source: hexadecimal."""
    return {name: of_versions(_read_below(source)) for name, source in sources.items()}


def _read_below(source: Checkpoint | ArrayFile) -> Path:
    """Where what is read stands: the one step of a run, the one item of a step, whatever is saved beside it."""
    if isinstance(source, ArrayFile):
        return source.place_on_disk
    location = source.location
    return location.root if location.shape == "item" else location.step_directory or location.root
