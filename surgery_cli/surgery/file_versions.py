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
    """Where what is read stands: of a run in the one step, whatever is saved beside it meanwhile."""
    step = source.location.step_directory if isinstance(source, Checkpoint) else None
    return step or source.place_on_disk
