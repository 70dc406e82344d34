"""Which of the other processes still live, told from what each says again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

BEAT_SECONDS: Final = 0.25
"""So often every process says that it lives, and looks whether the others do."""

PATIENCE_SECONDS: Final = 1.5
"""Who says nothing for so long is gone."""

PATIENCE_WITH_CALLS_SECONDS: Final = 30.0
"""The same for a process that calls a function of the user's: compiled code may keep Python's other threads waiting."""


class Lives:
    """When each of the others was last heard of, in looks of our own: who is late to look is late to judge."""

    def __init__(self) -> None:
        self._said: dict[int, bytes] = {}
        self._silent: dict[int, int] = {}

    def begin_anew(self) -> None:
        self._silent.clear()

    def gone(
        self, joined: Collection[int], beats: dict[str, bytes], have_left: Callable[[], set[int]]
    ) -> list[int]:
        """Who of those that joined has said nothing for longer than it said it might, and has not left as it should."""
        silent = []
        for number in sorted(joined):
            said = beats.get(str(number), b"")  # it joins before its first
            if said != self._said.get(number):
                self._said[number], self._silent[number] = said, 0
                continue
            count = self._silent[number] = self._silent.get(number, 0) + 1
            patience = float(said.partition(b" ")[2] or PATIENCE_SECONDS)
            if count * BEAT_SECONDS >= patience:
                silent.append(number)
        return [number for number in silent if number not in have_left()] if silent else []
