"""How leaves are read that a command only looks at: each within `--memory`, as far as its stored chunks let it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from surgery_cli.engine.bounded_reads import PairReading, Reading
from surgery_cli.engine.decoding import MOST_DECODED
from surgery_cli.script.user_code import Say
from surgery_cli.surgery.memory import (
    Need,
    bytes_to_use,
    check_memory,
    decoded_again,
    memory_notes,
    why_chunks,
)
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

AnyReading = TypeVar("AnyReading", Reading, PairReading)


class Look(NamedTuple, Generic[AnyReading]):
    """A leaf that is read: its name, what it is on each side, and how it is read within a bound of bytes."""

    name: str
    specs: Sequence[LeafSpec]
    within: Callable[[int], AnyReading]


class Looks(NamedTuple, Generic[AnyReading]):
    """How each of many leaves is read, and the bytes that may be in flight for all of them together."""

    readings: dict[LeafPath, AnyReading]
    limit_bytes: int

    @property
    def costs(self) -> Iterator[tuple[LeafPath, int]]:
        """The leaves, each with the bytes that it holds while it is read."""
        return ((path, reading.held_bytes) for path, reading in self.readings.items())


def planned_looks(
    looks: Mapping[LeafPath, Look[AnyReading]], memory_bytes: int, say: Say
) -> Looks[AnyReading]:
    """Decide how leaves are read; ``say`` is told, before any is, what takes more memory than it may, or more time.

    Raises:
        CheckpointError: this process has no memory for the least that can be read of some.
    """
    limit = bytes_to_use(memory_bytes)
    readings = {path: look.within(limit) for path, look in looks.items()}
    needs = [
        Need(reading.held_bytes, look.name, look.specs[0].type_text, partial(_why, look))
        for look, reading in zip(looks.values(), readings.values(), strict=True)
        if reading.held_bytes > limit
    ]
    needs.sort(key=lambda need: -need.bytes)
    check_memory(needs)
    for note in memory_notes(needs, memory_bytes):
        say(note)
    again = [
        (looks[path], reading) for path, reading in readings.items() if reading.times > MOST_DECODED
    ]
    if again:
        times = max(reading.times for _, reading in again)
        enough = max(_enough(look) for look, _ in again)
        say(decoded_again((look.name for look, _ in again), times, enough))
    return Looks(readings, limit)


def _why(look: Look[AnyReading]) -> str:
    return why_chunks([(spec, spec.chunk_shape) for spec in look.specs], "decoded")


def _enough(look: Look[AnyReading]) -> int:
    """A bound within which the chunks of a leaf are decoded once."""
    low, high = 0, 8 * sum(spec.bytes for spec in look.specs)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if look.within(middle).times == 1 else (middle + 1, high)
    return low
