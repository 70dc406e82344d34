"""The digests that a checkpoint is held against: those of its own record, or of a manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from surgery_cli import reports
from surgery_cli.draft.leaf_digest import KnownLeaf, Manifest, sort_of
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.errors import CheckpointError, PlanError, Problem, UnseenError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.proof.file_marks import (
    BY_ITS_MARK,
    WHICH_OF_BOTH,
    is_its_file,
    said_of_both,
    stands_beside,
)
from surgery_cli.proof.files import ITSELF
from surgery_cli.proof.on_record import chosen_digests, in_keys_of, read_record, sealed_within
from surgery_cli.proof.own_record import not_of_record
from surgery_cli.proof.record_parts import FileBlocks
from surgery_cli.proof.record_places import (
    has_several_trees,
    record_key,
    record_path,
    recorded_place,
    trees_of_step,
)
from surgery_cli.proof.sha256sums import digests_in
from surgery_cli.proof.surgery_json import Record, decoded, tree_front
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.leaf_names import containers_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.tree.spelling import decode
from surgery_cli.words.quantities import counted

FILE_CHANGED: Final = "file changed"


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Digests that a checkpoint is held against, and where they stand."""

    source: str = "nothing: no digests are on record"
    digests: Mapping[str, LeafDigest] = {}
    key_of: Callable[[LeafPath], str] = lambda path: path.spelling
    """How ``digests`` name a leaf."""
    leaf_blocks: Mapping[str, bytes] = {}
    """Digests of the blocks of large leaves, one behind the other."""
    files: Mapping[str, str] = {}
    sealed_within: Sequence[str] = ("",)
    """What the paths begin with of all files that are sealed."""
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
    seen: Sequence[reports.Finding] = ()
    """What a look shows not to be as on record, whatever digests say."""
    doubt: str = ""
    """What is said where something is not as on record, and the record may be of what stood there before."""


def on_record(checkpoint: Checkpoint) -> Expected:
    """The digests in the checkpoint's own record; damage of the record is a finding."""
    name = record_path(checkpoint).name
    damage: list[Problem] = []
    record: Record | None = None
    try:
        record = read_record(checkpoint, of_any=True, damage=damage)
    except UnseenError:
        raise
    except CheckpointError as error:
        damage = list(error.problems)
    found = [
        reports.Finding(
            path=one.path or name,
            what="record",
            about=reports.Subject.RECORD,
            detail=one.why or one.what,
        )
        for one in damage
    ]
    is_open = record is not None and not record.sealed  # else there are digests of all
    if record is not None and is_open and (why := not_of_record(checkpoint, record)):
        found.append(reports.Finding(name, "record", reports.Subject.RECORD, detail=why))
    if record is not None:
        known = _recorded(checkpoint, record, name)
        known = replace(known, damage=found, sealed_within=sealed_within(checkpoint))
        return _beside(checkpoint, record, known)
    return Expected(source=f"nothing: {damage[0].what}", damage=found) if found else Expected()


def _beside(checkpoint: Checkpoint, record: Record, known: Expected) -> Expected:
    """The same of a record that stands beside a checkpoint: what is saved over that leaves it."""
    if not stands_beside(checkpoint):
        return known
    seen = []
    if is_its_file(record, checkpoint) is False:
        about = reports.Subject.FILE
        seen = [reports.Finding(ITSELF, FILE_CHANGED, about, detail=BY_ITS_MARK)]
    said, ways = said_of_both(checkpoint)
    return replace(known, seen=seen, doubt=f"{said}: {WHICH_OF_BOTH}. {ways}")


def manifest(checkpoint: Checkpoint, path: Path) -> Expected:
    """The digests in a file: of ``seal --to`` or ``--sha256sums``, or the document of ``inspect --digests --json``.

    Raises:
        PlanError: the file cannot be read, is neither, or contradicts itself.
        CheckpointError: it is a record, and damaged.
    """
    refuse_special(path, PlanError)
    try:
        raw = read_small(path)
        if (sums := digests_in(raw)) is not None:
            return Expected(source=str(path), files=_files_in(checkpoint, sums))
        fields = decode_json(raw, type=dict[str, msgspec.Raw])
        if "digests" in fields:
            return _recorded(
                checkpoint, in_keys_of(decoded(raw, path), trees_of_step(checkpoint)), str(path)
            )
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


def manifest_for(checkpoint: Checkpoint, text: str) -> Manifest:
    """The digests in a file, for the leaves of a checkpoint as they are named where it is edited and judged.

    Raises:
        PlanError: the file cannot be read, or has no digest of any leaf.
        CheckpointError: it is a record, and damaged.
    """
    path = path_at(address(text))
    if filesystem.is_folder(path):
        raise PlanError(
            f"'{text}' is a directory, and no manifest",
            fix="name a file: what `surgery seal CKPT --to FILE` writes, or the `surgery.json` in a checkpoint",
            field="digests_of",
        )
    try:
        expected = manifest(checkpoint, path)
    except PlanError as error:
        error.problems = tuple(replace(one, field="digests_of") for one in error.problems)
        raise
    if not expected.digests:
        raise PlanError(
            f"'{text}' has no digest of any leaf",
            why=f"it lists {counted(len(expected.files), 'file')}" if expected.files else "",
            fix="make a manifest of leaves with `surgery seal CKPT --to FILE`",
            field="digests_of",
        )
    own = _own_prefix(checkpoint) if not expected.is_complete else ""
    leaves, tree, is_typed = dict[str, KnownLeaf](), TreeSpec(), True
    for key, leaf in expected.digests.items():
        name = key.removeprefix(own)
        leaves[name] = KnownLeaf(leaf.digest, leaf.grid, expected.sorts.get(key, ""))
        spec = leaf.spec if isinstance(leaf, _ManifestLeaf) else LeafSpec(kind=LeafKind.NO_TARGET)
        is_typed &= isinstance(leaf, _ManifestLeaf) and leaf.is_typed
        tree[LeafPath(map(decode, name.split("/")))] = spec
    containers = None if containers_of(checkpoint, ()) is None else expected.containers
    return Manifest(leaves, tree, is_typed, containers)


class Manifests:
    """Those of one run, by their names in the plan, each read once; for the leaves of its source."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._read: dict[str, Manifest] = {}

    def read(self, text: str) -> Manifest:
        """Raises as ``manifest_for``."""
        if text not in self._read:
            self._read[text] = manifest_for(self._checkpoint, text)
        return self._read[text]

    @property
    def marks(self) -> dict[str, str]:
        """By what each is known again."""
        return {text: one.mark for text, one in self._read.items()}


def _own_prefix(checkpoint: Checkpoint) -> str:
    """What the keys of a record begin with that do not stand in the paths of the leaves: of the one chosen item."""
    if checkpoint.location.prefix_items or not has_several_trees(checkpoint):
        return ""
    (name,) = checkpoint.items
    return tree_front(name)


def _files_in(checkpoint: Checkpoint, sums: Mapping[str, str]) -> Mapping[str, str]:
    """The digests of a list, by what a record calls files: one that is a checkpoint itself has no name there."""
    place = recorded_place(checkpoint)
    if filesystem.is_folder(place):
        return sums
    return {ITSELF: sums[place.name]} if place.name in sums else sums


class _ManifestLeaf(LeafDigest, frozen=True, kw_only=True):
    """A leaf of a manifest, with its digest."""

    path: str
    spelling: str = ""
    kind: str = ""
    type_text: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def spec(self) -> LeafSpec:
        """What conditions on types ask of; a placeholder where the kind is none that is known."""
        kind = LeafKind(self.kind) if self.is_typed else LeafKind.NO_TARGET
        impl = self.type_text.partition("<")[2].partition(">")[0] or None
        return LeafSpec(kind=kind, shape=self.shape, dtype=self.dtype, key_impl=impl)

    @property
    def is_typed(self) -> bool:
        return self.kind in list(LeafKind)


class _Manifest(msgspec.Struct, frozen=True):
    """What of the document of ``inspect --digests --json`` is a manifest."""

    leaves: list[_ManifestLeaf]
    containers: dict[str, str] | None = None
    """Missing in manifests of before."""


def _recorded(checkpoint: Checkpoint, record: Record, source: str) -> Expected:
    """``record``: in the keys of the step as it is now."""
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
