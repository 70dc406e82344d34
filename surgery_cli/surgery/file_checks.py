"""Files held against a seal, whole or piece by piece, several at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli import reports
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError
from surgery_cli.proof.files import READ_AT_ONCE, READ_BYTES, piece_digest
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import damage_of
from surgery_cli.surgery.expected_digests import FILE_CHANGED, Expected
from surgery_cli.surgery.sampling import DIGEST_BYTES, Parts
from surgery_cli.words.lists import listed

ADDED: Final = "file added"
ADDED_FOLDER: Final = "folder without a sealed file"

_MOST_PIECES: Final = 4


class _Task(NamedTuple):
    """A file to be read, or a piece of it."""

    key: str
    path: Path
    piece: int | None
    start: int
    bytes: int
    """So many from ``start`` on; all of it if it is read whole."""


def file_findings(
    files: Mapping[str, Path],
    chosen: Mapping[str, Parts],
    expected: Expected,
    listener: Listener | None,
) -> list[reports.Finding]:
    """Read the chosen files, and say what is not what was sealed, was added or is gone."""
    tasks = [
        task for key, parts in chosen.items() for task in _tasks(key, files[key], parts, expected)
    ]
    meter = Meter(listener, "verifying files", sum(task.bytes for task in tasks))
    costs = ((task, READ_BYTES) for task in tasks)
    found: dict[str, list[tuple[_Task, str | CheckpointError]]] = {}
    for task, one in zip(tasks, in_order(_digest, costs, READ_AT_ONCE * READ_BYTES), strict=True):
        found.setdefault(task.key, []).append((task, one))
        meter.advance(task.bytes, task.key)
    findings = [
        reports.Finding(key, ADDED, reports.Subject.FILE)
        for key in files
        if key not in expected.files
    ]
    for key, known in expected.file_blocks.items():
        if (
            key in files
            and key not in chosen
            and (size := filesystem.size(files[key])) != known.bytes
        ):
            said = f"it has {size:,} bytes, and had {known.bytes:,}"
            findings.append(reports.Finding(key, FILE_CHANGED, reports.Subject.FILE, detail=said))
    for key, reads in found.items():
        findings += _judged(key, reads, expected)
    return findings + [
        reports.Finding(key, "file missing", reports.Subject.FILE)
        for key in expected.files
        if key not in files
    ]


def _tasks(key: str, path: Path, parts: Parts, expected: Expected) -> list[_Task]:
    size = filesystem.size(path)
    known = expected.file_blocks.get(key)
    if parts is None or known is None:
        return [_Task(key, path, None, 0, size)]
    return [
        _Task(key, path, part, part * known.piece, min(known.piece, size - part * known.piece))
        for part in parts
    ]


def _digest(task: _Task) -> str | CheckpointError:
    try:
        return piece_digest(task.path, task.start, None if task.piece is None else task.bytes).hex()
    except OSError as error:
        return damage_of(task.path, error)


def _judged(
    key: str, reads: list[tuple[_Task, str | CheckpointError]], expected: Expected
) -> list[reports.Finding]:
    """What was found of a file."""
    for _, one in reads:
        if isinstance(one, CheckpointError):
            why = one.problems[0].why or one.problems[0].what
            return [reports.Finding(key, "file unreadable", reports.Subject.FILE, detail=why)]
    if key not in expected.files:
        return []
    (first, digest), *_ = reads
    if first.piece is None:
        here, there = f"sha256:{digest}", expected.files[key]
        return (
            []
            if here == there
            else [reports.Finding(key, FILE_CHANGED, reports.Subject.FILE, here, there)]
        )
    digests, width = expected.file_blocks[key].digests, 2 * DIGEST_BYTES
    other = [
        f"bytes {task.start:,} to {task.start + task.bytes:,}"
        for task, one in reads
        if task.piece is not None and one != digests[task.piece * width :][:width]
    ]
    if not other:
        return []
    said = f"not what was sealed: {listed(other, _MOST_PIECES)}"
    return [reports.Finding(key, FILE_CHANGED, reports.Subject.FILE, detail=said)]
