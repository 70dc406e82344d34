"""The content of ``surgery.json``: what was done to a checkpoint, from what, and the digests that prove it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli import __version__
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.self_digest import holds_own_digest, with_own_digest
from surgery_cli.optimizer.detect.settled import Settled
from surgery_cli.proof.record_parts import (
    Assumed,
    ChangedLeaf,
    CheckedRule,
    FileBlocks,
    Run,
    Verified,
)
from surgery_cli.store.write.journal import Input
from surgery_cli.tree.paths import LeafPath

Value = TypeVar("Value")

PACKAGES = ("orbax-checkpoint", "tensorstore", "numpy", "jax", "flax", "optax")


class Record(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """The content of ``surgery.json``. The keys of ``digests`` are those of ``record_key``, for the ``trees``."""

    schema_version: int = 1
    content: str = ""
    """SHA-256 of the whole file as it is without this digest; empty in records of before."""
    surgery: str
    versions: dict[str, str]
    written: str
    """UTC, ISO 8601."""
    source: str
    source_fingerprint: str
    address: str | UnsetType = UNSET
    """How a plan names what was edited, where that is more than ``source``: its step, its item."""
    donors: dict[str, str] = {}
    """Fingerprints of the other sources that leaves were taken from, by name."""
    trees: list[str] | UnsetType = UNSET
    """The trees of a step that ``digests`` and ``slots`` are about: of a single one, keys do without its name. Unset
    where trees have no names, and in records of before."""
    edited_trees: list[str] | UnsetType = UNSET
    """Those that the run was about: of a single one, the paths in ``leaves`` and ``plan`` do without its name."""
    put_into: str | UnsetType = UNSET
    """Of a result that was put into a step as an item, the ``content`` of the step's record by then: of an item that is
    on record there, this one is the later."""
    draft: str
    plan: dict[str, Any]
    settings: dict[str, str] | UnsetType = UNSET
    """What was told beside the plan, beyond the defaults, that the result or its proof depends on, by option. Unset in
    records of before, and of what no plan has made."""
    inputs: dict[str, Input] | UnsetType = UNSET
    """All that was read, and what the result was held against, with what tells each from another that came in its
    place since, by name. Unset in records of before, and of what no plan has made."""
    of_file: str | UnsetType = UNSET
    """Of a file by itself, SHA-256 over its size and samples of it, or the MD5 that Google's service tells: where it
    does not agree, the file was damaged since, or another saved over it. Unset of folders, in other buckets, and in
    records of before."""
    stands: dict[str, str] | UnsetType = UNSET
    """Of what `--resume` has made, every other file of the step or file, relative to it: how many bytes it has, and of
    a small one on a disk the SHA-256, or the MD5 that Google's service tells. Whether the run is done already is told
    by these."""
    leaves: list[ChangedLeaf]
    removed: list[str] = []
    notes: list[str] = []
    """What the preview said of the edits: the members of an average, slots that are kept."""
    assumptions: list[Assumed] = []
    """What the run took for granted without proof, as the preview named it."""
    checks: list[CheckedRule] | UnsetType = UNSET
    """What the plan said must hold, and was seen to hold."""
    inverse: dict[str, Any] | UnsetType = UNSET
    """The plan that undoes this one; what it takes from ``source`` only that has."""
    original: str | UnsetType = UNSET
    """Digest of the source's keys and types, where they were changed: what the inverse must give."""
    rescued: dict[str, dict[str, Any]] | UnsetType = UNSET
    """Of a checkpoint that was rescued, where each leaf comes from, and what proves it."""
    slots: list[Settled] = []
    """What is known of the optimizer's slots beyond what metadata tell, so that no later run need be told again."""
    verified: Verified = Verified()
    digests: dict[str, LeafDigest] = {}
    files: dict[str, str] = {}
    """SHA-256 of every other file of the step or file, relative to it, in a checkpoint that is sealed."""
    leaf_blocks: dict[str, str] | UnsetType = UNSET
    """Of leaves of several blocks the SHA-256 of each, in C order, in hexadecimal, one behind the other: of these the
    leaf's digest is made, and each block can be checked by itself."""
    file_blocks: dict[str, FileBlocks] | UnsetType = UNSET
    """The same of large files, which are cut into pieces of one length."""
    sealed: dict[str, Any] | None = None
    """When, and by which version of this program, ``files`` and the digests of all leaves were recorded."""
    history: list[dict[str, Any]] = []
    """The records of earlier runs; digests that a later record holds unchanged are left out of them."""

    @cached_property
    def runs(self) -> list[Run]:
        """This run and those before, the latest first, with paths as they were then."""
        return [
            Run(*(getattr(self, name) for name in Run.__struct_fields__)),
            *(msgspec.convert(entry, Run) for entry in reversed(self.history)),
        ]

    def is_about(self, tree: str, among: Sequence[str]) -> bool:
        """True if digests of a tree can be in this record of a step, which has the trees ``among`` by now.

        A record of before does not say of which trees it is: of a step with several, keys begin with their names.
        """
        if self.trees is not UNSET:
            return tree in self.trees
        front = tree_front(tree)
        return len(among) < 2 or any(key.startswith(front) for key in self.digests)

    def without(self, tree: str, among: Sequence[str]) -> Record:
        """This record of a step without the digests of a tree that it is about; see ``is_about``."""
        if not self.is_about(tree, among):
            return self
        is_single = len(among if self.trees is UNSET else self.trees) < 2
        front = "" if is_single else tree_front(tree)

        def left(values: Mapping[str, Value]) -> dict[str, Value]:
            return {key: value for key, value in values.items() if not key.startswith(front)}

        return msgspec.structs.replace(
            self,
            digests=left(self.digests),
            leaf_blocks=self.leaf_blocks and left(self.leaf_blocks),
            slots=[one for one in self.slots if not one.node.startswith(front)],
        )

    @property
    def last_written(self) -> str:
        """When the run was, or the seal that came after it."""
        return max(self.written, str((self.sealed or {}).get("written", "")))

    def has_edited(self, tree: str) -> bool:
        """True if a run on record was about a tree, or may have been."""
        return any(run.edited_trees is UNSET or tree in run.edited_trees for run in self.runs)


def tree_front(tree: str) -> str:
    """What the keys of a record begin with of a tree's leaves, in a step of several."""
    return f"{LeafPath((tree,)).spelling}/"


OF_ONE_FILE = ("content", "stands", "files", "leaf_blocks", "file_blocks")
"""What a record says of files: it is true of no other checkpoint."""


def versions() -> dict[str, str]:
    """The installed packages that a result depends on; none of them is imported."""
    from importlib import metadata  # with the parser of mails, which who only looks does without

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_record(**fields: Any) -> Record:
    """A record by this program, now."""
    return Record(surgery=__version__, versions=versions(), written=now(), **fields)


def encoded(record: Record) -> bytes:
    """The bytes of a record, with the digest of its own content."""
    blank = msgspec.structs.replace(record, content="")
    return with_own_digest(msgspec.json.format(msgspec.json.encode(blank), indent=1) + b"\n")


@lru_cache(maxsize=4)
def decoded(raw: bytes, path: Path) -> Record:
    """The record in a file that reads ``raw``: all who ask in one run ask for the same few, and some are large.

    Raises:
        CheckpointError: it is no record, or not what was written.
    """
    try:
        record = decode_json(raw, type=Record)
        _ = record.runs  # earlier ones are asked, too
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise misfit(path, error) from None
    if not (holds_own_digest(raw, record.content) if record.content else not record.files):
        raise CheckpointError(
            f"'{path}' is not what was {'sealed' if record.sealed else 'written'}",
            why="it does not agree with the digest of its own content: damage, or a change by hand",
            fix="copy it again from where it is whole, or remove it to go on without the digests on record",
        )
    return record


def misfit(path: Path, error: Exception) -> CheckpointError:
    """The error for a record of which a part is not what it should be."""
    return CheckpointError(
        f"'{path}' cannot be understood",
        why=str(error),
        fix="it is damaged; remove it to go on without the digests on record",
    )
