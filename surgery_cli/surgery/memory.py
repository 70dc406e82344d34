"""Whether what a command takes at once fits into the memory that it may use, told before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from surgery_cli.engine.bounded_reads import chunk_bytes
from surgery_cli.engine.grid import BLOCK_BYTES
from surgery_cli.errors import CheckpointError
from surgery_cli.store.filesystem.memory_limits import room
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text

MOST_NAMED: Final = 3

Stored = tuple[LeafSpec, tuple[int, ...] | None]
"""A leaf, and the shape of the chunks in which it is read or written."""


class Need(NamedTuple):
    """The bytes that a leaf takes at once, and why it takes no less; ``path`` as it prints."""

    bytes: int
    path: str
    type_text: str
    why: Callable[[], str]


def bytes_to_use(memory_bytes: int) -> int:
    """How much may be in flight: what `--memory` allows, and not more than this process can have."""
    return max(min(memory_bytes, room().tried_bytes), 1)


def check_memory(needs: Sequence[Need]) -> None:
    """Refuse what this process has no memory for, before any of it is asked for; ``needs``: the largest first.

    Raises:
        CheckpointError: leaves, or stored chunks of them, are declared larger than the memory that can be had.
    """
    if not needs:
        return
    there = room()
    over = _above(needs, there.tried_bytes)
    if over:
        most = over[0]
        which = most.type_text if len(over) == 1 else f"'{most.path}', {most.type_text},"
        raise CheckpointError(
            f"{_named(over)} {'does' if len(over) == 1 else 'do'} not fit into memory",
            why=f"{which} takes about {byte_text(most.bytes)} at once, {byte_text(there.bytes)}"
            f" {there.bound}: {most.why()}",
            fix="run where there is more memory, or raise the limit; if that is not meant, the metadata is damaged",
        )


def memory_notes(needs: Sequence[Need], memory_bytes: int) -> list[Consequence]:
    """Where the budget cannot be kept: which leaves take how much, and why the one does that takes most."""
    over = _above(needs, memory_bytes)
    if not over:
        return []
    most = over[0]
    takes = "takes about" if len(over) == 1 else "take up to"
    why = most.why() if len(over) == 1 else f"'{most.path}' since {most.why()}"
    return [
        Consequence(
            DocsPage.MEMORY,
            f"{_named(over)} {takes} {byte_text(most.bytes)} at once, more than `--memory` allows: {why};"
            f" the run goes on with that much, which {memory_option(most.bytes)} allows",
        )
    ]


def _above(needs: Iterable[Need], limit_bytes: int) -> list[Need]:
    """Of each leaf that takes more, by its name, the most that it takes: several rules may look at one."""
    largest: dict[str, Need] = {}
    for need in needs:
        if need.bytes > limit_bytes:
            largest.setdefault(need.path, need)
    return list(largest.values())


def decoded_again(names: Iterable[str], times: int, enough: int) -> Remark:
    """What is said where chunks are decoded so many times at most, and ``enough`` bytes would do."""
    return Remark(
        DocsPage.MEMORY,
        f"the stored chunks of {quoted(names, MOST_NAMED)} are decoded up to {times:,} times, as they lie across what"
        f" is read at once: with {memory_option(enough)} they are decoded once",
    )


def memory_option(count: int) -> str:
    """The option as it is typed to allow so many bytes."""
    return f"`--memory {-(-count // (1 << 20))}MiB`"


def why_chunks(stored: Iterable[Stored], done: str) -> str:
    """Why leaves that are ``stored`` so take what they take, in a sentence: what is ``done`` to chunks as a whole."""
    spec, chunk = max(
        ((spec, chunk_bytes(spec, shape)) for spec, shape in stored), key=lambda pair: pair[1]
    )
    if chunk <= BLOCK_BYTES:
        return (
            f"the least that is worked on is a block of {byte_text(min(BLOCK_BYTES, spec.bytes))}"
        )
    if chunk >= spec.bytes:
        return f"it is stored in one chunk of {byte_text(chunk)}, which is {done} whole"
    return f"it is stored in chunks of {byte_text(chunk)}, which are {done} whole"


def _named(needs: Sequence[Need]) -> str:
    return quoted((need.path for need in needs), MOST_NAMED)
