"""What stands beside the arrays of a broken checkpoint, held against the seal that it carries."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.proof.files import ITSELF, file_digests, file_key, files_of
from surgery_cli.proof.surgery_json import Record
from surgery_cli.salvage.place import STEP_FILES, BrokenPlace
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.orbax.sidecars import is_sidecar


def sidecars_unlike_seal(place: BrokenPlace, folder: Path, record: Record | None) -> frozenset[str]:
    """The small files of a tree that are there, and are not what was sealed."""
    found = set()
    for name, digest in ({} if record is None else record.files).items():
        file = place.root / name
        if not filesystem.is_file(file) or folder not in file.parents:
            continue
        inside = file.relative_to(folder)
        if is_sidecar(inside):
            with filesystem.reader(file) as stream:
                if not digest.endswith(hashlib.file_digest(stream, "sha256").hexdigest()):
                    found.add(inside.as_posix())
    return frozenset(found)


def others_unlike_seal(place: BrokenPlace, record: Record | None) -> dict[str, str]:
    """What stands beside the trees, or stood there, and is not what was sealed: by name, with why.

    Of the trees, leaves have digests of their own; the mark that a save leaves at its end holds nothing.
    """
    if record is None:
        return {}
    others = {file_key(other.name): other for other in place.others}
    if place.root in place.items.values():
        known = _by_top({name: record.files[name] for name in STEP_FILES if name in record.files})
    else:
        known = _by_top(record.files)
    trees = {file_key(folder.name) for folder in place.items.values()}
    found = {}
    for name in known.keys() - trees - place.lost.keys() - {COMMIT_MARK}:
        other = others.get(name)
        if other is None and filesystem.exists(place.root / name):
            continue  # nothing of it goes into a result
        if why := _unlike(other, known[name]):
            found[name] = why
    return dict(sorted(found.items()))


def _by_top(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Digests by the first name of their files' paths, then by the rest of it."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name, digest in files.items():
        top, _, rest = name.partition("/")
        found[top][rest or ITSELF] = digest
    return found


def _unlike(other: Path | None, sealed: Mapping[str, str]) -> str:
    """Why something is not what was sealed; '' if it is."""
    if other is None:
        return "it is gone since it was sealed"
    try:
        found = file_digests(files_of(other), lambda count, key: None)
    except UnseenError:
        raise
    except CheckpointError as error:
        return f"it is not what was sealed: {error.problems[0].what}"
    for name in sorted(found.keys() | sealed.keys()):
        if found.get(name) != sealed.get(name):
            what = "it" if name == ITSELF else f"'{name}'"
            fate = "is gone since it was sealed" if name not in found else "is not what was sealed"
            return f"{what} {fate if name in sealed else 'was not there when it was sealed'}"
    return ""
