"""Seal: digests of all leaves and of every file on record, after which no byte changes unseen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from surgery_cli import __version__, reports
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, digest_reading, leaf_digest
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError, Problem, SurgeryError
from surgery_cli.proof.files import file_digests, files_of
from surgery_cli.proof.metadata_files import metadata_faults
from surgery_cli.proof.record_files import check_record_target, gone, put_record
from surgery_cli.proof.records import read_record, record_key, record_path, recorded_place
from surgery_cli.proof.sealed_files import check_taken_files
from surgery_cli.proof.surgery_json import Record, encoded, new_record, now
from surgery_cli.salvage.glance import opened
from surgery_cli.script.user_code import Say
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.look_memory import Look, Looks, planned_looks
from surgery_cli.tree.paths import LeafPath

_Digests = dict[str, LeafDigest]
_Stamp = tuple[int, int, int]
"""Of a file: its inode, size and time of change."""


@reads
def seal(
    argument: str,
    *,
    step: int | None = None,
    item: str | None = None,
    to: Path | None = None,
    anew: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Seal:
    """Record digests of all leaves, and SHA-256 of every file, of the step or flat checkpoint that ``argument`` names.

    One file is added or replaced, by a rename: ``surgery.json``, or the file that ``to`` names. ``anew`` records what
    is there now also where an earlier digest does not hold. ``say`` is told, before values are read, what takes more
    memory than ``memory_bytes``, or more time for that.

    Raises:
        DestinationError: the record cannot be written there.
        CheckpointError: an earlier digest does not hold; or it changes, or vanishes, meanwhile.
    """
    checkpoint = opened(argument, step=step, item=item)
    place = recorded_place(checkpoint)
    stamps: dict[Path, _Stamp] = {}
    try:
        target = record_path(checkpoint) if to is None else to.absolute()
        check_record_target(target, place, is_own=to is None)
        files = files_of(place, target)
        stamps |= {path: _stamp(path) for path in files.values()}
        count = checkpoint.tree.bytes + sum(stamp[1] for stamp in stamps.values())
        meter = Meter(listener, "sealing", count)
        old = read_record(checkpoint)
        looks = _looks(checkpoint, old.digests if old is not None else {}, memory_bytes, say)
        digests = _leaf_digests(checkpoint, looks, meter)
        hashes = _file_hashes(files, meter)
        faults = metadata_faults(checkpoint)
        first = old or _first_record(checkpoint)
    except (OSError, SurgeryError):
        _check_standing(place, stamps)  # what is gone may have been taken for damage
        raise
    _check_standing(place, stamps)
    changed = _changed(old, digests, hashes)
    if changed and not anew:
        raise _does_not_hold(checkpoint, changed)
    sealed = sealed_record(first, digests, hashes, changed)
    put_record(target, encoded(sealed), lambda: _check_standing(place, stamps))
    return reports.Seal(
        checkpoint=str(checkpoint.location.root),
        chosen=checkpoint.location.chosen,
        record=str(target),
        leaves=len(digests),
        files=len(hashes),
        bytes_read=count,
        anew=changed,
        notes=[f"sealed as it is: '{file}': {why}" for file, why in faults],
    )


def sealed_record(
    record: Record, digests: Mapping[str, LeafDigest], files: Mapping[str, str], anew: Sequence[str]
) -> Record:
    """A record with the digests of a seal; what did not hold before goes into its history."""
    history = list(record.history)
    if anew:
        history.append(
            {
                "sealed_anew": now(),
                "surgery": __version__,
                "digests": {
                    k: d for k, d in msgspec.to_builtins(record.digests).items() if k in anew
                },
                "files": {k: d for k, d in record.files.items() if k in anew},
            }
        )
    return msgspec.structs.replace(
        record,
        digests={**record.digests, **digests},
        files=dict(files),
        sealed={
            "written": now(),
            "surgery": __version__,
            "leaves": len(digests),
            "files": len(files),
        },
        history=history,
    )


def seal_written(
    source: Checkpoint,
    written: Checkpoint,
    record: Record,
    read_back: Sequence[LeafPath],
    memory_bytes: int,
    listener: Listener | None,
    *,
    to_come: Sequence[Path] = (),
) -> tuple[Record, int]:
    """The record of a result under construction, sealed, and how many bytes were read for it.

    ``read_back`` are the leaves whose digests have just been compared with what is stored, ``to_come`` empty files that
    say that the result is whole, once it is.

    Raises:
        CheckpointError: a leaf or file that was taken over unchanged is not what its digest on record says.
    """
    place, target = recorded_place(written), record_path(written)
    files = files_of(place, target)
    size = sum(_stamp(path)[1] for path in files.values())
    left = set(read_back)
    rest = [path for path in written.tree if path not in left]
    count = sum(written.tree[path].bytes for path in rest)
    meter = Meter(listener, "sealing", count + size)
    looks = _looks(written, record.digests, memory_bytes, lambda _: None, rest)
    digests = _leaf_digests(written, looks, meter)
    changed = _changed(record, digests, {})
    if changed:
        raise _does_not_hold(written, changed, source=record.source)
    hashes = _file_hashes(files, meter)
    check_taken_files(source, hashes)
    empty = f"sha256:{hashlib.sha256().hexdigest()}"
    hashes |= {
        str(file.relative_to(place)): empty for file in to_come if file.is_relative_to(place)
    }
    return sealed_record(record, digests, dict(sorted(hashes.items())), ()), count + size


def _first_record(checkpoint: Checkpoint) -> Record:
    """The record of a checkpoint that this program has not written."""
    return new_record(
        source=str(checkpoint.location.root),
        source_fingerprint=checkpoint.fingerprint,
        draft="",
        plan={"edits": []},
        leaves=[],
    )


class _Recorded(NamedTuple):
    """How leaves are read to be digested, and over which grids: those on record where there are any."""

    looks: Looks[Reading]
    grids: Mapping[LeafPath, tuple[int, ...] | None]


def _looks(
    checkpoint: Checkpoint,
    known: Mapping[str, LeafDigest],
    memory_bytes: int,
    say: Say,
    paths: Sequence[LeafPath] | None = None,
) -> _Recorded:
    tree = checkpoint.tree
    chosen = list(tree) if paths is None else list(paths)
    checkpoint.expect(chosen)

    def grid_of(path: LeafPath) -> tuple[int, ...] | None:
        expected = known.get(record_key(checkpoint, path))
        has_grid = expected is not None and len(expected.grid) == len(tree[path].shape)
        return expected.grid if expected is not None and expected.grid and has_grid else None

    grids = {path: grid_of(path) for path in chosen}
    looks = {
        path: Look(tree.texts[path], (tree[path],), partial(digest_reading, tree[path], grid=grid))
        for path, grid in grids.items()
    }
    return _Recorded(planned_looks(looks, memory_bytes, say), grids)


def _leaf_digests(checkpoint: Checkpoint, recorded: _Recorded, meter: Meter) -> _Digests:
    """The digests of leaves, by record key."""
    tree, (looks, grids) = checkpoint.tree, recorded

    def digest_of(path: LeafPath) -> LeafDigest:
        return leaf_digest(checkpoint, path, tree[path], looks.readings[path], grids[path])

    found = {}
    digests = in_order(digest_of, looks.costs, looks.limit_bytes)
    for path, digest in zip(grids, digests, strict=True):
        found[record_key(checkpoint, path)] = digest
        meter.advance(tree[path].bytes, tree.texts[path])
    return found


def _file_hashes(files: Mapping[str, Path], meter: Meter) -> dict[str, str]:
    found = {}
    for key, digest in file_digests(files, meter.advance).items():
        if isinstance(digest, CheckpointError):
            raise digest
        found[key] = digest
    return found


def _changed(
    old: Record | None, digests: Mapping[str, LeafDigest], files: Mapping[str, str]
) -> list[str]:
    """The leaves and files that are on record as something else."""
    if old is None:
        return []
    leaves = [
        key
        for key, digest in digests.items()
        if key in old.digests and old.digests[key].digest != digest.digest
    ]
    lost = [key for key in old.files if files and key not in files]
    return leaves + [k for k, d in files.items() if old.files.get(k, d) != d] + lost


def _does_not_hold(
    checkpoint: Checkpoint, changed: Sequence[str], source: str = ""
) -> CheckpointError:
    where = source or str(checkpoint.location.root)
    error = CheckpointError.of(
        Problem(
            f"'{name}' in '{where}' is not what its digest on record says",
            why="it has changed since it was recorded: damage, or another program",
            fix="copy it again from where it is whole"
            + ("" if source else "; `--anew` records it as it is now, and says so in the history"),
            path=name,
        )
        for name in changed
    )
    assert isinstance(error, CheckpointError)
    return error


def _stamp(path: Path) -> _Stamp:
    try:
        status = filesystem.status(path)
    except FileNotFoundError:
        return (0, 0, 0)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _check_standing(place: Path, before: Mapping[Path, _Stamp]) -> None:
    """Refuse what is no more what it was when sealing it began."""
    filesystem.forget(place)
    if not filesystem.exists(place):
        raise gone(place)
    for path, stamp in before.items():
        now_is = _stamp(path)
        if not any(now_is):
            raise gone(place)
        if now_is != stamp:
            raise CheckpointError(
                f"'{place}' changed while it was sealed",
                why=f"'{path}' is not what it was at the start",
                fix="wait until whatever writes to it has ended, then seal it again",
            )
