"""The newest version of a database, without its history and the files that only that needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.orbax.btree import Survey, database_folders
from surgery_cli.store.orbax.btree_nodes import MANIFEST


def keep_newest(target: Path, known: Survey | None, linker: Linker) -> Survey:
    """Drop the history of a database, and the files that nothing refers to any more."""
    survey = Survey(target, known)
    filesystem.replace_whole(target / MANIFEST, newest_version(survey.manifest))
    drop_unneeded(target, survey, linker)
    return survey


def drop_unneeded(target: Path, survey: Survey, linker: Linker) -> None:
    """Drop the files of a database that nothing refers to; ``linker`` has carried some, and counts them no more."""
    needed = set(survey.files)
    folders = database_folders(target)
    unneeded = [target / file for file in survey.all_files() if file not in needed]
    # of manifests only the root's is read
    linker.drop_data([*unneeded, *(folder / MANIFEST for folder in folders)])
    for folder in folders:
        _remove_empty(folder)


def newest_version(manifest: dict[str, Any]) -> bytes:
    """A manifest of the newest version alone, so that files of older versions need not exist."""
    import tensorstore as ts

    newest = {
        **manifest,
        "versions": manifest["versions"][-1:],
        "version_tree_nodes": [],
    }
    found: bytes = ts.ocdbt.undump_manifest(newest)
    return found


def _remove_empty(folder: Path) -> None:
    for prefix, _ in reversed(list(filesystem.below(folder))):
        with suppress(OSError):  # not empty
            filesystem.delete_folder(folder / prefix)
