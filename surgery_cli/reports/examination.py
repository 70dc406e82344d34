"""The document of `doctor`."""

from __future__ import annotations

import msgspec

from surgery_cli.document import Noted


class ExaminedPlace(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A thing in a run directory.

    ``state`` is ``whole``, ``writing`` (somebody is seen to write or remove it), ``unsettled`` (not whole, and changed
    a moment ago), ``unfinished``, ``damaged``, ``changed`` (not as the record beside it says), ``leftover``,
    ``unreadable`` or ``apart`` (nothing that a run needs).
    """

    path: str
    """Its name in the run directory; ``.`` where one checkpoint was named."""
    state: str
    step: int | None = None
    of: str = ""
    """Who has left it, or writes it."""
    bytes: int
    dead_bytes: int = 0
    """In its data files, to which nothing refers."""
    changed: str | None = None
    """When something in it was changed last: UTC, ISO 8601."""
    leaves: int | None = None
    whole_leaves: int | None = None
    """How many of them are all there, of what is not whole; None where that was not looked at, or nothing is known."""
    at_least: bool = False
    """Data files were not searched: there may be more."""
    checked: int | None = None
    """Leaves that were read and held against digests on record, with ``--read-data``."""
    unchecked: int | None = None
    """Leaves that were read, and have no digest."""
    temporary: dict[str, int] = {}
    """Bytes of files in it that have not got their names, by their paths."""
    why: list[str] = []
    todo: str = ""


class Examination(Noted, kw_only=True, frozen=True):
    """What ``doctor`` found."""

    root: str
    places: list[ExaminedPlace]
    counts: dict[str, int]
    """How many there are of each state."""
    bytes: int
    """On disk; a file with several names counts once."""
    dead_bytes: int
    leftover_bytes: int
    """Of what is a leftover as a whole."""
    reads_data: bool = False

    @property
    def exit_code(self) -> int:
        """0 if nothing is wrong, 3 if something could not be looked at, else 1."""
        if self.counts.get("unreadable"):
            return 3
        return 1 if any(self.counts.get(state) for state in FINDINGS) else 0


FINDINGS = ("unsettled", "unfinished", "damaged", "changed", "leftover")
"""States that ask for a person."""
