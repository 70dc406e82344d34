"""Whether this process is one of several of a run: what the program's edge asks, which loads nothing else of that."""

from __future__ import annotations

from typing import Final, NoReturn, Protocol


class Member(Protocol):
    """One of several processes."""

    is_struck: bool
    """It was asked to end by a signal, of which the others are to hear."""

    def leave(self, code: int) -> NoReturn:
        """End this process as the others expect it."""


current: Final[list[Member]] = []
"""The one that this process is; empty if it is alone."""
