"""What a format must say so that results can be written in it, and the files that most of them are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from surgery_cli.draft.recipe import Output
from surgery_cli.settings.export import Export
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class NewFile(msgspec.Struct, frozen=True):
    """A file of the result: its name in the destination ('' for the destination itself), leaves, and bytes."""

    name: str
    leaves: int
    bytes: int


class OutputFormat(Protocol):
    """A format that results are written in: a row of ``table.FORMATS``.

    What is read from the result is held against the draft leaf by leaf, so ``place`` and ``held`` say what reading it
    gives.
    """

    @property
    def name(self) -> str:
        """As plans say it."""

    @property
    def dtypes(self) -> frozenset[str]:
        """Those that the format has."""

    @property
    def is_marked(self) -> bool:
        """True for a folder of which a mark says in a bucket that it is whole, as of a checkpoint of Orbax's."""

    def place(self, path: LeafPath) -> LeafPath:
        """The path at which a leaf stands in what is written."""

    def held(self, spec: LeafSpec) -> LeafSpec | None:
        """As what a leaf is read again, whatever its dtype; None for what has no values, and no place there.

        Raises:
            KeyError: a leaf of this kind has values that the format has no place for.
        """

    def is_apart(self, path: LeafPath) -> bool:
        """True for a leaf that is no part of such files: it stays behind. ``path`` is what ``place`` gave."""

    def name_fault(self, path: LeafPath) -> str:
        """Why the format cannot store a leaf under its name; '' if it can. ``path`` is what ``place`` gave."""

    def check_leaves(self, leaves: Mapping[LeafPath, Output], request: Export) -> None:
        """See that the leaves go together, and with what was asked for.

        Raises:
            PlanError: all that do not.
        """

    def check_destination(self, target: Path, request: Export) -> None:
        """See that the format can be written there as asked for.

        Raises:
            PlanError: the destination is called like something else, or ``request`` says what the format does not have.
        """

    def ordered(self, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        """The leaves as their values follow each other in what is written."""

    def new_files(self, plan: ItemPlan, target: Path, request: Export) -> list[NewFile]:
        """The files that will be there, told from metadata."""

    def writer(self, plan: ItemPlan, target: Path, request: Export) -> ItemWriter:
        """What writes them."""


class Values(msgspec.Struct, frozen=True):
    """The next ``bytes`` bytes of a leaf's values in C order; ``look`` sees them as they are written."""

    path: LeafPath
    bytes: int
    look: Callable[[Any], None] | None = None


class Encoded(msgspec.Struct, frozen=True):
    """All values of a leaf, which come as one block, as ``encode`` makes bytes of them; about ``bytes`` many."""

    path: LeafPath
    encode: Callable[[Any], bytes]
    bytes: int


class Late(msgspec.Struct, frozen=True):
    """Bytes that are known once everything before them is written; about ``bytes`` many."""

    make: Callable[[], bytes]
    bytes: int


Part: TypeAlias = bytes | Values | Encoded | Late


class FileParts(msgspec.Struct, frozen=True):
    """A file as the parts that stand in it one after the other; ``name`` as in ``NewFile``."""

    name: str
    parts: Sequence[Part]

    @property
    def outline(self) -> NewFile:
        """The file as previews say it."""
        counted = (len(part) if isinstance(part, bytes) else part.bytes for part in self.parts)
        paths = {part.path for part in self.parts if isinstance(part, Values | Encoded)}
        return NewFile(self.name, len(paths), sum(counted))
