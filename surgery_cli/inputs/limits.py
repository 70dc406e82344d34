"""How much of anything a file from outside may declare: one table, looked at before memory is asked for.

What is damaged, or made by somebody who means harm, says in a few bytes that terabytes follow. Every reader asks here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

import msgspec

from surgery_cli.errors import LimitError, Problem, SurgeryError
from surgery_cli.words.quantities import byte_text

Unit: TypeAlias = Literal[
    "bytes",
    "values",
    "leaves",
    "keys",
    "characters",
    "numbers",
    "devices",
    "blocks",
    "seconds",
    "places",
]


class Limit(msgspec.Struct, frozen=True):
    """The most that is taken of something; ``of`` says what that is, ``why`` where the figure comes from."""

    name: str
    default: int
    unit: Unit
    of: str
    why: str

    @property
    def most(self) -> int:
        """What holds now: the default, or what was said instead."""
        return _said.get(self.name, self.default)

    def text(self, count: int) -> str:
        """So much of it, as people read it.

        >>> METADATA.text(1 << 20), LEAVES.text(1200)
        ('1.0 MiB', '1,200 leaves')
        """
        return byte_text(count) if self.unit == "bytes" else f"{count:,} {self.unit}"

    def check(self, count: int, where: str, refusal: type[SurgeryError] = LimitError) -> None:
        """Refuse what is more than that; ``where`` begins the sentence: the file, in quotes.

        Raises:
            refusal: it is.
        """
        if count > self.most:
            raise self.refusal(count, where, refusal)

    def refusal(
        self, count: int, where: str, refusal: type[SurgeryError] = LimitError
    ) -> SurgeryError:
        """The error for ``count`` of it, or more; see ``check``."""
        damage = "is damaged" if issubclass(refusal, LimitError) else "is not what it should be"
        return refusal(
            Problem(
                f"{where} has {self.text(count)}, and {self.text(self.most)} are read at most",
                why=f"that is the limit `{self.name}`: {self.of}; {self.why}",
                fix=f"if so much is meant, add `--limit {self.name}={self._typed(count)}`; else it {damage}",
            )
        )

    def _typed(self, count: int) -> str:
        """The least round value that lets ``count`` through, as the option takes it."""
        if self.unit == "bytes":
            return f"{-(-count // (1 << 20))}MiB"
        step = 10 ** max(len(str(count)) - 2, 0)
        return str(-(-count // step) * step)


METADATA: Final = Limit(
    "metadata",
    256 << 20,
    "bytes",
    "a small file that is read whole, such as `_METADATA`, `_sharding`, `manifest.ocdbt` or `surgery.json`",
    "100,000 leaves take 50 MB of it",
)
JSON_VALUES: Final = Limit(
    "json-values",
    16_000_000,
    "values",
    "what a JSON text holds, counted by its commas and brackets before it is read",
    "a value takes up to 72 bytes of memory, and 100,000 leaves have 3 million",
)
DOCUMENT: Final = Limit(
    "document",
    16 << 20,
    "bytes",
    "what describes one array, `.zarray` or `zarr.json`",
    "Orbax writes less than 2 KiB",
)
LEAVES: Final = Limit(
    "leaves",
    1_000_000,
    "leaves",
    "a tree, an archive's entries, or what one edit makes",
    "the largest models have some 100,000, optimizer state included",
)
STORED_VALUES: Final = Limit(
    "stored-values",
    10_000_000,
    "values",
    "all that an OCDBT database holds, chunks and documents",
    "10 TB in chunks of 4 MiB are 2.5 million",
)
NESTING: Final = Limit(
    "nesting",
    128,
    "keys",
    "the path of a leaf, and what a plan nests",
    "no tree of parameters comes near; Python itself gives up at some 1,000",
)
NAME: Final = Limit(
    "name",
    16_384,
    "characters",
    "the path of a leaf, printed",
    "a file system takes 255 in a name, and 4,096 in a path",
)
PATTERN: Final = Limit(
    "pattern",
    16_384,
    "characters",
    "one pattern or regular expression",
    "several patterns may be given, each with as many",
)
PATTERN_SECONDS: Final = Limit(
    "pattern-seconds",
    10,
    "seconds",
    "the time that one regular expression computes to be matched with all leaves, in the main thread",
    "100,000 leaves take a tenth of a second",
)
PICKLE: Final = Limit(
    "pickle",
    64 << 20,
    "bytes",
    "what says in a PyTorch file which tensors there are",
    "tensors are not in it: 100,000 of them take 20 MB",
)
NODE: Final = Limit(
    "node",
    256 << 20,
    "bytes",
    "a node of a B-tree that `rescue` finds by its mark",
    "Orbax lets one hold 100 MB",
)
CHUNKS: Final = Limit(
    "chunks",
    1 << 22,
    "values",
    "the chunks of one array that are named one by one where they are missing",
    "16 TiB in chunks of 4 MiB",
)
BLOCKS: Final = Limit(
    "blocks",
    1 << 20,
    "blocks",
    "the blocks over which a digest on record was taken",
    "16 TiB in the blocks of 16 MiB that are written",
)
DEVICES: Final = Limit(
    "devices",
    65_536,
    "devices",
    "a mesh",
    "the largest clusters have as many; each is a line in every sharding",
)
PLAN: Final = Limit(
    "plan",
    64 << 20,
    "bytes",
    "the text of a plan, or of a file that one names",
    "the record of a run over 100,000 leaves, which is a plan, has 30 MB",
)
PLAN_VALUES: Final = Limit(
    "plan-values",
    1_000_000,
    "values",
    "what a plan holds, its aliases written out",
    "10,000 edits have some 100,000",
)
PLACES: Final = Limit(
    "places",
    1 << 20,
    "places",
    "an axis that `repeat` or `interpolate-positions` makes, each of whose places is looked at alone",
    "the longest contexts have as many positions",
)
RANGE_STEPS: Final = Limit(
    "range-steps",
    1_000,
    "numbers",
    "a range with a step in a pattern, `{0..100..2}`, which is written out",
    "no model has as many layers; ranges without a step have no such limit",
)

LIMITS: Final[Mapping[str, Limit]] = {
    limit.name: limit
    for limit in (
        *(METADATA, JSON_VALUES, DOCUMENT, LEAVES, STORED_VALUES, NESTING, NAME, PATTERN),
        PATTERN_SECONDS,
        *(PICKLE, NODE, CHUNKS, BLOCKS, DEVICES, PLAN, PLAN_VALUES, PLACES, RANGE_STEPS),
    )
}
"""All of them, by their names."""

_SURELY_FEW: Final = 16 << 20
"""Bytes that hold no more values than there is memory for, whatever they are."""


def check_values(json: bytes, where: str, refusal: type[SurgeryError] = LimitError) -> None:
    """Refuse a JSON text with more values than the limit; commas and brackets inside of strings count as well.

    Raises:
        refusal: it has.
    """
    if len(json) > _SURELY_FEW:
        count = 1 + json.count(b",") + json.count(b"[") + json.count(b"{")
        JSON_VALUES.check(count, where, refusal)


_said: dict[str, int] = {}
"""What holds instead of the defaults: for the whole process, as readers are many and deep."""


@contextmanager
def limits(said: Mapping[str, int]) -> Iterator[None]:
    """Inside, these limits hold instead, in the whole process.

    >>> with limits({"leaves": 2_000_000}):
    ...     LEAVES.most
    2000000
    """
    before = dict(_said)
    _said.update(said)
    try:
        yield
    finally:
        _said.clear()
        _said.update(before)
