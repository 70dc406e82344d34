"""Seal: digests of all leaves and of every file on record, after which no byte changes unseen."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from surgery_cli import __version__, reports
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError, Problem, SurgeryError
from surgery_cli.proof.file_marks import file_mark
from surgery_cli.proof.files import files_of
from surgery_cli.proof.metadata_files import metadata_faults
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.on_record import chosen_digests
from surgery_cli.proof.own_record import record_to_seal
from surgery_cli.proof.record_files import put_record
from surgery_cli.proof.record_places import (
    named_trees,
    new_record_path,
    recorded_place,
)
from surgery_cli.proof.sealed_files import check_taken_files
from surgery_cli.proof.sha256sums import sums_of
from surgery_cli.proof.side_values import SideValues
from surgery_cli.proof.surgery_json import Record, encoded, new_record, now
from surgery_cli.salvage.opening import opened
from surgery_cli.script.user_code import Say
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.aftermath import begin_anew
from surgery_cli.surgery.seal_digests import (
    FileHashes,
    LeafDigests,
    check_readable,
    digested_leaves,
    hashed_files,
    planned,
)
from surgery_cli.surgery.seal_target import checked_target, remove_older
from surgery_cli.surgery.stamps import Stamp, check_standing, stamp_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage

if TYPE_CHECKING:
    from surgery_cli.surgery.preparation import Prepared


@reads
def seal(
    argument: str,
    *,
    step: int | None = None,
    item: str | None = None,
    to: Path | None = None,
    sha256sums: Path | None = None,
    anew: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Seal:
    """Record digests of all leaves, and SHA-256 of every file, of the step or flat checkpoint that ``argument`` names.

    One file is added or replaced, by a rename: ``surgery.json``, or the file that ``to`` names. ``sha256sums`` is a
    file outside of the checkpoint for the digests of all files, the record among them. ``anew`` records what is there
    now also where an earlier digest does not hold. ``say`` is told before what takes more than ``memory_bytes``.

    Raises:
        DestinationError: the record cannot be written there.
        CheckpointError: an earlier digest does not hold; or it changes, or vanishes, meanwhile.
    """
    begin_anew()
    checkpoint = opened(argument, step=step, item=item)
    place, stamps = recorded_place(checkpoint), dict[Path, Stamp]()
    try:
        target = checked_target(to, sha256sums, checkpoint)
        files = files_of(place, target)
        stamps |= {path: stamp_of(path) for path in files.values()}
        count = checkpoint.tree.bytes + sum(size for _, size, _ in stamps.values())
        meter = Meter(listener, "sealing", count)
        old = record_to_seal(checkpoint, anew=anew)
        looks = planned(checkpoint, old.digests if old is not None else {}, memory_bytes, say)
        leaves = digested_leaves(checkpoint, looks, meter)
        hashes = hashed_files(files, meter)
        faults = metadata_faults(checkpoint) + SideValues(checkpoint, memory_bytes).faults
        first = _extended(checkpoint, old)
    except (OSError, SurgeryError):
        with suppress(OSError):  # nothing is known of what cannot be looked at
            check_standing(place, stamps)  # what is gone may have been taken for damage
        raise
    check_standing(place, stamps)
    changed = _changed(old, leaves.digests, hashes.digests) + _gone(checkpoint, old, leaves)
    if changed and not anew:
        raise _does_not_hold(checkpoint, changed, {*leaves.digests, *hashes.digests})
    content = encoded(sealed_record(first, leaves, hashes, changed))
    put_record(target, content, lambda: check_standing(place, stamps), is_own=to is None)
    remove_older(target, checkpoint)
    return reports.Seal(
        checkpoint=str(checkpoint.location.root),
        chosen=checkpoint.location.chosen,
        assumptions=assumed_steps(checkpoint),
        record=str(target),
        sha256sums=_put_sums(sha256sums, place, files, hashes, {} if to else {target: content}),
        leaves=len(leaves.digests),
        files=len(hashes.digests),
        bytes_read=count,
        anew=changed,
        notes=_notes(faults),
    )


def _notes(faults: Iterable[tuple[str, str]]) -> list[Note]:
    found = (f"sealed as it is: '{file}': {why}" for file, why in faults)
    return [Consequence(DocsPage.SEAL, said) for said in found]


def _put_sums(
    target: Path | None,
    place: Path,
    files: Mapping[str, Path],
    hashes: FileHashes,
    records: Mapping[Path, bytes],
) -> reports.FileList | None:
    """Make the list of digests; names are as they are from the checkpoint's folder, or from that of a single file."""
    if target is None:
        return None
    folder = place if filesystem.is_folder(place) else place.parent
    own = {path: f"sha256:{hashlib.sha256(raw).hexdigest()}" for path, raw in records.items()}
    every = {path: hashes.digests[key] for key, path in files.items()} | own
    inside = {path: digest for path, digest in every.items() if path.is_relative_to(folder)}
    lines = sums_of((str(path.relative_to(folder)), inside[path]) for path in sorted(inside))
    put_record(filesystem.absolute(target), lines, lambda: None, is_own=False)
    return reports.FileList(file=str(filesystem.absolute(target)), folder=str(folder))


def sealed_record(
    record: Record, leaves: LeafDigests, files: FileHashes, anew: Sequence[str]
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
    kept = {key: digest for key, digest in record.digests.items() if key not in anew}
    return msgspec.structs.replace(
        record,
        digests={**kept, **leaves.digests},
        files=dict(sorted(files.digests.items())),
        leaf_blocks=leaves.blocks or UNSET,
        file_blocks=files.blocks or UNSET,
        sealed={
            "written": now(),
            "surgery": __version__,
            "leaves": len(leaves.digests),
            "files": len(files.digests),
        },
        history=history,
    )


def seal_written(
    prepared: Prepared,
    written: Checkpoint,
    record: Record,
    read_back: Sequence[LeafPath],
    memory_bytes: int,
    listener: Listener | None,
    *,
    to_come: Mapping[Path, bytes] = {},
) -> tuple[Record, int]:
    """The record of a result under construction, sealed, and how many bytes were read for it.

    ``read_back`` are the leaves whose digests have just been compared with what is stored, ``to_come`` files that say
    that the result is whole, once it is, and what they hold.

    Raises:
        CheckpointError: a leaf or file that was taken over unchanged is not what its digest on record says, or damaged.
    """
    place, target = recorded_place(written), new_record_path(written)
    files = files_of(place, target)
    size = sum(stamp_of(path)[1] for path in files.values())
    left = set(read_back)
    rest = [path for path in written.tree if path not in left]
    count = sum(written.tree[path].bytes for path in rest)
    meter = Meter(listener, "sealing", count + size)
    looks = planned(written, record.digests, memory_bytes, lambda _: None, rest)
    try:
        leaves = digested_leaves(written, looks, meter)
    except CheckpointError as error:
        for path in rest:
            if str(path) == error.problems[0].path:
                check_readable(prepared.draft, prepared.sources, path, memory_bytes)
        raise
    changed = _changed(record, leaves.digests, {})
    if changed:
        raise _does_not_hold(written, changed, {*leaves.digests}, source=record.source)
    hashes = hashed_files(files, meter)
    check_taken_files(prepared.checkpoint, hashes.digests)
    for file, content in to_come.items():
        if file.is_relative_to(place):
            digest = hashlib.sha256(content).hexdigest()
            hashes.digests[str(file.relative_to(place))] = f"sha256:{digest}"
    return sealed_record(record, leaves, hashes, ()), count + size


def _extended(checkpoint: Checkpoint, old: Record | None) -> Record:
    """The record that a seal goes into: it is about all trees then; of a checkpoint without one, a first."""
    trees, of_file = named_trees(checkpoint), file_mark(recorded_place(checkpoint))
    if old is not None:
        return msgspec.structs.replace(old, trees=trees, of_file=of_file)
    return new_record(
        trees=trees,
        of_file=of_file,
        source=str(checkpoint.location.root),
        source_fingerprint=checkpoint.fingerprint,
        draft="",
        edited_trees=[],
        plan={"edits": []},
        leaves=[],
    )


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


def _gone(checkpoint: Checkpoint, old: Record | None, leaves: LeafDigests) -> list[str]:
    """The leaves that are on record, of the items that were chosen, and are not there."""
    return (
        []
        if old is None
        else [k for k in chosen_digests(checkpoint, old) if k not in leaves.digests]
    )


def _does_not_hold(
    checkpoint: Checkpoint, changed: Sequence[str], there: Collection[str], source: str = ""
) -> CheckpointError:
    """The error for what is on record, and is something else by now, or not ``there``."""
    where = source or str(checkpoint.location.root)
    error = CheckpointError.of(
        Problem(
            f"'{name}' in '{where}' is not what its digest on record says"
            if name in there
            else f"'{name}' in '{where}' is on record, and not there",
            why="it was changed, or replaced, since it was recorded: by a program, or damage"
            if name in there
            else "it was removed, or renamed, since it was recorded",
            fix="copy it again from where it is whole"
            + (
                "" if source else "; `--anew` records what is there now, and says so in the history"
            ),
            path=name,
        )
        for name in changed
    )
    assert isinstance(error, CheckpointError)
    return error
