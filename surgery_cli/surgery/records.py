"""``surgery.json``: what was done to a checkpoint, from what, and the digests that prove it."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli import __version__
from surgery_cli.errors import CheckpointError
from surgery_cli.store.checkpoint import Checkpoint
from surgery_cli.store.step_writer import RECORD
from surgery_cli.verification.digests import LeafDigest

PACKAGES = ("orbax-checkpoint", "tensorstore", "numpy", "jax", "flax", "optax")


class Record(msgspec.Struct, kw_only=True):
    """The content of ``surgery.json``. Paths of ``digests`` are printed paths, relative to the step's tree."""

    schema_version: int = 1
    surgery: str
    versions: dict[str, str]
    written: str
    """UTC, ISO 8601."""
    source: str
    source_fingerprint: str
    draft: str
    plan: dict[str, Any]
    leaves: list[dict[str, Any]]
    removed: list[str] = []
    verified: dict[str, Any] = {}
    digests: dict[str, LeafDigest] = {}
    history: list[dict[str, Any]] = []


def versions() -> dict[str, str]:
    """The installed packages that a result depends on; nothing is imported."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_record(**fields: Any) -> Record:
    """A record by this program, now."""
    return Record(surgery=__version__, versions=versions(), written=now(), **fields)


def write_record(path: Path, record: Record) -> None:
    """Write the record; one that came along from the source is in its ``history`` by now."""
    path.unlink(missing_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def record_path(checkpoint: Checkpoint) -> Path:
    """Where the record of a checkpoint stands: in the step or flat directory, beside a file or a bare directory."""
    location = checkpoint.location
    place = location.step_directory or location.root
    if place.is_dir() and not is_inferred(checkpoint):
        return place / RECORD
    return place.with_name(f"{place.name}.{RECORD}")


def is_inferred(checkpoint: Checkpoint) -> bool:
    """True if readers infer the structure from the directory's listing, where a stray file would be a leaf."""
    return any(
        item.layout.startswith("per-leaf")
        and not (item.directory / "_METADATA").exists()
        and not (item.directory / "checkpoint").exists()
        for item in checkpoint.items.values()
    )


def read_record(checkpoint: Checkpoint) -> Record | None:
    """The record that a checkpoint carries, if any.

    Raises:
        CheckpointError: it is damaged.
    """
    path = record_path(checkpoint)
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except msgspec.MsgspecError as error:
        raise CheckpointError(
            f"'{path}' cannot be understood",
            why=str(error),
            fix="it is damaged; remove it to go on without the digests on record",
        ) from None


def digests_after(
    old: Record | None, edited: dict[str, LeafDigest], origins: dict[str, str | None]
) -> dict[str, LeafDigest]:
    """The digests that are still true: of leaves that were taken as they are (under their new paths), and new ones.

    ``origins``: for every output leaf its path in the source if it is taken by reference, else None.
    """
    found: dict[str, LeafDigest] = {}
    for path, origin in origins.items():
        if path in edited:
            found[path] = edited[path]
        elif old is not None and origin is not None and origin in old.digests:
            found[path] = old.digests[origin]
    return found
