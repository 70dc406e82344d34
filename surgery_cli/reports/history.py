"""The document of `log`."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.document import Document
from surgery_cli.proof.record_parts import Assumed


class HistoryEntry(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one run did, as it is on record; ``kind`` is ``edit``, ``copy``, ``rescue``, ``seal`` or ``seal anew``."""

    number: int
    """Counted from the oldest, which is 1."""
    kind: str
    written: str
    """UTC, ISO 8601."""
    surgery: str
    """The version of this program that did it."""
    source: str = ""
    address: str = ""
    """How commands name what was edited, where that is more than ``source``: its step, its item."""
    source_fingerprint: str = ""
    items: list[str] = []
    """Those that it was about, where that is on record and the step has others by now."""
    donors: dict[str, str] = {}
    """Fingerprints of the other checkpoints that leaves were taken from, by their names in the plan."""
    plan: dict[str, Any] = {}
    draft: str = ""
    written_leaves: int = 0
    removed_leaves: int = 0
    read_back: int = 0
    """How many of the written leaves were read back and compared."""
    rescued_leaves: int = 0
    sealed: str = ""
    """When digests of all leaves and files were recorded, if they were. UTC, ISO 8601."""
    undoable: bool = False
    """True if the record holds the plan that undoes this run, which only the last one can be asked for, and for all
    items that it was about.
    """
    not_here: str = ""
    """What shows that this run, the last, has not written what stands here; then nothing says how to undo it."""
    versions: dict[str, str] = {}


class History(Document, kw_only=True, frozen=True):
    """What was done to a checkpoint, the latest first; nothing where no record came along."""

    checkpoint: str
    address: str
    """How commands name it, with the step and the item that were chosen."""
    chosen: str
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
    record: str
    """Where the record stands, or would stand."""
    entries: list[HistoryEntry]
