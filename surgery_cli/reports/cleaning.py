"""The document of `clean`."""

from __future__ import annotations

import msgspec

from surgery_cli.document import Noted


class LeftoverRow(msgspec.Struct, kw_only=True, frozen=True):
    """A directory in which a run was building.

    ``state`` is ``dead``, ``living``, ``elsewhere`` or ``unknown``; or, where what it was to replace is half replaced,
    ``whole``, or ``lost`` if it is not whole any more.
    """

    path: str
    state: str
    bytes: int
    """Of files that have no other name: what its removal gives back."""
    host: str | None = None
    pid: int | None = None
    keeps: str = ""
    """What a run with ``--resume`` has done in it, and the command that would go on from there."""


class Cleaning(Noted, kw_only=True, frozen=True):
    """What killed runs had left. ``kept`` is what may belong to a run that still goes.

    ``finished``: what had half replaced something in a bucket, and has been put in its place.
    """

    path: str
    removed: list[LeftoverRow]
    finished: list[LeftoverRow] = []
    kept: list[LeftoverRow]
    dry_run: bool = False
