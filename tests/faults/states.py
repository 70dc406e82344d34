"""What stands somewhere, told such that two runs of one command give the same: TensorStore reads databases, not we."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import tensorstore as ts

MANIFEST, RECORD = "manifest.ocdbt", "surgery.json"


def names_below(place: Path) -> set[str]:
    """Every file and folder below, links not followed."""
    return {
        os.path.relpath(f"{folder}/{name}", place)
        for folder, folders, files in os.walk(place)
        for name in (*folders, *files)
    }


def content_of(place: Path) -> dict[str, str]:
    """Digests of what readers find in a file or folder: keys and values of databases, and all other files.

    What is new in every run is left out: names of data files, when a record was written. A record's own claims about
    files are held against them here.
    """
    if place.is_file():
        return {"": _file(place, place.parent)}
    found = {}
    for folder, folders, files in os.walk(place):
        here = Path(folder)
        relative = here.relative_to(place)
        if MANIFEST in files:
            found |= {f"{relative}//{key}": digest for key, digest in _database(here).items()}
            folders[:] = [f for f in folders if f != "d" and not f.startswith("ocdbt.")]
        found |= {str(relative / f): _file(here / f, place) for f in files if f != MANIFEST}
    return found


def digest_of(place: Path) -> str:
    """``content_of`` in one word; '' where nothing stands."""
    if not os.path.lexists(place):
        return ""
    return _sha(json.dumps(content_of(place), sort_keys=True).encode())


def _database(folder: Path) -> dict[str, str]:
    spec = {"driver": "ocdbt", "base": f"file://{folder}/"}
    try:
        store = ts.KvStore.open(spec, context=ts.Context()).result()  # a context remembers
        return {key.decode(): _sha(store.read(key).result().value) for key in store.list().result()}
    except ValueError as error:
        return {"": f"cannot be read: {str(error)[:200]}"}


def _file(path: Path, place: Path) -> str:
    content = path.read_bytes()
    if path.name.endswith(RECORD):
        try:
            return _sha(json.dumps(_record(json.loads(content), place), sort_keys=True).encode())
        except ValueError:
            pass
    return _sha(content)


def _record(record: dict, place: Path) -> dict:
    """A record without what differs from run to run; its seal counts for as much as it holds."""
    files = record.pop("files", {})
    wrong = [
        name
        for name, digest in files.items()
        if not (place / name).is_file() or f"sha256:{_sha((place / name).read_bytes())}" != digest
    ]
    for name in ("written", "content"):
        record.pop(name, None)
    if isinstance(record.get("sealed"), dict):
        record["sealed"].pop("written", None)
    record["history"] = [
        {key: value for key, value in old.items() if key not in ("written", "files", "sealed")}
        for old in record.get("history", [])
    ]
    return {**record, "files that differ": wrong, "sealed files": len(files)}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
