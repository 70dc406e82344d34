"""Of `plan` and `apply`: what a plan does to a checkpoint."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.document import Document, Noted
from surgery_cli.proof.record_parts import Assumed, ChangedLeaf, CheckedRule
from surgery_cli.reports.exports import Exported
from surgery_cli.reports.layout import Resharded
from surgery_cli.store.filesystem.request_counts import Requests
from surgery_cli.words.notes import Consequence, Note


class EditLine(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of the text preview: an edit, how many leaves it names, how many twins follow and how."""

    operation: str
    summary: str
    """E.g. ``params/Dense_1/kernel by 0.5``."""
    leaves: int
    twins: dict[str, int] = {}
    """How many twins by policy: ``{"transform": 2}``."""
    bytes: int = 0
    """Bytes in memory of the leaves whose values change."""
    effect: str = ""
    """What a value edit does to a leaf: ``scales``, ``sets``, ``draws``, …; see ``surgery_cli.draft.effect``."""
    taken_for: list[str] = []
    """What twins are taken for that follow without proof; see ``Preview.assumptions``."""


class Preview(Noted, kw_only=True, frozen=True):
    """What ``plan`` and ``--dry-run`` print. All counts of bytes are estimates from metadata, named as such."""

    source: str
    destination: str | None
    draft: str
    strategy: str
    """``copy-on-write``, ``compact``, or ``export`` where the result is in a format of other programs."""
    strategy_reason: str
    edits: list[EditLine]
    leaves: list[ChangedLeaf]
    removed: list[str]
    by_reference: int
    bytes_read: int
    bytes_written: int
    bytes_linked: int
    bytes_copied: int
    bytes_read_at_most: int | UnsetType = UNSET
    """Where equal elements may have to be told apart, which takes further passes: what is then read, of a preview."""
    bytes_read_to_seal: int | UnsetType = UNSET
    """Of ``bytes_read``, what ``--seal`` reads in the end: every file, and the leaves that were not read back.

    A preview estimates it: how small new values and the tree of a database become is known once they are written.
    """
    requests: Requests | UnsetType = UNSET
    """What services are asked for that keep buckets, by kind, with the bytes as they are stored; the requests of
    looking at the source are among them. Left out where nothing lies in a bucket.
    """
    minutes: float | UnsetType = UNSET
    """How long these requests take at ``bytes_per_second``, and 50 ms for each waited for; of a preview alone."""
    bytes_per_second: int | UnsetType = UNSET
    rearranged: int | UnsetType = UNSET
    """Of the leaves by reference, those whose elements move, and whose stored chunks stay as they are."""
    partly_by_reference: int | UnsetType = UNSET
    """Further leaves, of which only some chunks are written."""
    notes: list[Note]
    """Sentences: twins kept because their power is not sure, values that remain in the files, …"""
    consequences: list[Consequence] = []
    """Those of the notes without which the result may be taken for another; ``--quiet`` leaves them."""
    assumptions: list[Assumed] = []
    """What is taken for granted without proof: of slots that follow, of a tree that names alone tell, and that an older
    step is meant where the newest is unfinished; named in the record, too."""
    checks: list[CheckedRule] | UnsetType = UNSET
    """What the plan says must hold; left out where it says nothing."""
    reshard: Resharded | UnsetType = UNSET
    """What becomes of chunks and shardings; left out where the plan asks for no layout."""
    exported: Exported | UnsetType = UNSET
    """Which files the result is; left out where it is a checkpoint in the layout of its source."""
    chosen: str = ""
    spellings: dict[str, str] | UnsetType = UNSET
    """The keys of leaves with odd names, by these: a slash in one is `%2F`, a percent sign `%25`, all else as it is."""


class Report(Preview, kw_only=True, frozen=True):
    """What ``apply`` and the edit commands print: a preview come true, and its proof. Bytes are as counted."""

    verified: bool
    """What was written was read back, and is what was computed; where this is repeated, by the run that wrote it."""
    digests: dict[str, str]
    seconds: float
    shared_files: int
    """How many files source and destination share on disk: a hard link is no backup."""
    shared: list[str] = []
    """Their names, relative to the destination."""
    checked: int
    """Edited leaves that were read back and compared."""
    sources_checked: int = 0
    """Leaves of the source and of donors that were read, have a digest on record, and agree with it."""
    taken_up_bytes: int = 0
    """Of values that an earlier run had written, with ``--resume``: read back, and not made again."""
    is_repeated: bool = False
    """With ``--resume``: an earlier run had finished this, as the record says; nothing was done."""
    sealed_files: int = 0
    """Files of the result that are on record with their SHA-256, with ``--seal``."""

    @classmethod
    def of(cls, preview: Preview, **found: Any) -> Report:
        """A preview with what was ``found`` when it was done."""
        return cls(**{**msgspec.structs.asdict(preview), **found})


class Judgement(Document, kw_only=True, frozen=True):
    """What ``assert`` prints where every rule holds; else it fails with what does not."""

    checkpoint: str
    checks: list[CheckedRule]
    bytes_read: int
    sources_checked: int = 0
    """Leaves that were read, have a digest on record, and agree with it."""
    not_judged: list[str] = []
    """Items that are no trees (metrics, JSON, single arrays): no rule is about them."""
    seconds: float
    chosen: str = ""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""


class InversePlan(Document, kw_only=True, frozen=True):
    """What ``plan --inverse`` prints: as text the plan alone, which can be applied as it stands."""

    checkpoint: str
    source: str
    """What was edited: what the result is, once the plan is applied."""
    plan: dict[str, Any]
    from_source: int
    """How many of its edits take from there what nothing else has."""
    not_brought_back: list[str] = []
    """Items of the source's step that the result has not, and no edit takes: metrics that `--metrics` left out."""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
