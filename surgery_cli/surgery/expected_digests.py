"""The digests that a checkpoint is held against: those of its own record, or of a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from surgery_cli import reports
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.proof.files import ITSELF
from surgery_cli.proof.records import (
    chosen_digests,
    read_record,
    record_key,
    record_path,
    recorded_place,
)
from surgery_cli.proof.sha256sums import digests_in
from surgery_cli.proof.surgery_json import FileBlocks, Record, decoded
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Digests that a checkpoint is held against, and where they stand."""

    source: str = "nothing: no digests are on record"
    digests: Mapping[str, LeafDigest] = {}
    key_of: Callable[[LeafPath], str] = lambda path: path.spelling
    """How ``digests`` name a leaf."""
    leaf_blocks: Mapping[str, bytes] = {}
    """Digests of the blocks of large leaves, one behind the other."""
    files: Mapping[str, str] = {}
    file_blocks: Mapping[str, FileBlocks] = {}
    """The same of pieces of large files."""
    sorts: Mapping[str, str] = {}
    """What else is known of the leaves, as ``sort_of`` says it."""
    containers: Mapping[str, str] | None = None
    """The nodes that are no dicts; None where nothing is known of nodes."""
    is_complete: bool = False
    """What the digests do not name is a finding."""
    damage: Sequence[reports.Finding] = ()
    """What is wrong with the record that they should stand in."""


def on_record(checkpoint: Checkpoint) -> Expected:
    """The digests in the checkpoint's own record; damage of the record is a finding."""
    name = record_path(checkpoint).name
    try:
        record = read_record(checkpoint)
    except CheckpointError as error:
        problem = error.problems[0]
        found = reports.Finding(path=name, what="record", detail=problem.why or problem.what)
        return Expected(source=f"nothing: {problem.what}", damage=[found])
    return Expected() if record is None else _recorded(checkpoint, record, name)


def manifest(checkpoint: Checkpoint, path: Path) -> Expected:
    """The digests in a file: of ``seal --to`` or ``--sha256sums``, or the document of ``inspect --digests --json``.

    Raises:
        PlanError: the file cannot be read, or is neither.
        CheckpointError: it is a record, and damaged.
    """
    refuse_special(path, PlanError)
    try:
        raw = read_small(path)
        if (sums := digests_in(raw)) is not None:
            return Expected(source=str(path), files=_files_in(checkpoint, sums))
        fields = decode_json(raw, type=dict[str, msgspec.Raw])
        if "digests" in fields:
            return _recorded(checkpoint, decoded(raw, path), str(path))
        found = decode_json(raw, type=_Manifest)
    except OSError as error:
        raise PlanError(
            f"the manifest '{path}' cannot be read", why=error.strerror or str(error)
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlanError(
            f"'{path}' is not a manifest",
            why=str(error),
            fix="make one with `surgery seal CKPT --to FILE`",
        ) from None
    digests = {leaf.spelling or leaf.path: leaf for leaf in found.leaves}
    sorts = {key: sort_of(leaf.kind, leaf.type_text) for key, leaf in digests.items() if leaf.kind}
    return Expected(
        source=str(path),
        digests=digests,
        sorts=sorts,
        containers=found.containers,
        is_complete=True,
    )


def _files_in(checkpoint: Checkpoint, sums: Mapping[str, str]) -> Mapping[str, str]:
    """The digests of a list, by what a record calls files: one that is a checkpoint itself has no name there."""
    place = recorded_place(checkpoint)
    if filesystem.is_folder(place):
        return sums
    return {ITSELF: sums[place.name]} if place.name in sums else sums


def sort_of(kind: str, type_text: str) -> str:
    """What the values of a leaf do not tell and a restore depends on: a number is no array, a key no bits.

    Whether an array is NumPy's is left out: it differs between formats that hold the same.
    """
    if kind in (LeafKind.ARRAY, LeafKind.NUMPY):
        return "an array"
    return type_text if kind in (LeafKind.KEY, LeafKind.EMPTY) else kind


class _ManifestLeaf(LeafDigest, frozen=True, kw_only=True):
    """A leaf of a manifest, with its digest."""

    path: str
    spelling: str = ""
    kind: str = ""
    type_text: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    """What of the document of ``inspect --digests --json`` is a manifest."""

    leaves: list[_ManifestLeaf]
    containers: dict[str, str] | None = None
    """Missing in manifests of before."""


def _recorded(checkpoint: Checkpoint, record: Record, source: str) -> Expected:
    return Expected(
        source=f"digests in {source}",
        digests=chosen_digests(checkpoint, record),
        key_of=lambda path: record_key(checkpoint, path),
        leaf_blocks=_decoded(record.leaf_blocks or {}),
        files=record.files,
        file_blocks=record.file_blocks or {},
    )


def _decoded(blocks: Mapping[str, str]) -> Mapping[str, bytes]:
    """Without what is no hexadecimal number, which another program has put there."""
    found = {}
    for key, text in blocks.items():
        with suppress(ValueError):
            found[key] = bytes.fromhex(text)
    return found
