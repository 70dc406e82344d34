"""Formats that hold arrays by name, one beside the other: what becomes of paths, and what they have no place for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from surgery_cli.draft.recipe import Output
from surgery_cli.errors import PlanError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.settings.export import Export
from surgery_cli.store.export.contract import FileParts, NewFile
from surgery_cli.store.export.sequential import SequentialWriter
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.writing_order import together
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

HELD: frozenset[LeafKind] = frozenset({LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.SCALAR})
"""Kinds of leaves that are arrays and nothing else, once they are read again."""


class Streamed:
    """What all formats have in common that are files, written from begin to end."""

    name: ClassVar[str]
    is_marked: ClassVar[bool] = False

    def files(self, plan: ItemPlan, target: Path, request: Export) -> Sequence[FileParts]:
        """The files part by part, with the leaves in the order of ``plan``."""
        raise NotImplementedError

    def new_files(self, plan: ItemPlan, target: Path, request: Export) -> list[NewFile]:
        return [file.outline for file in self.files(plan, target, request)]

    def writer(self, plan: ItemPlan, target: Path, request: Export) -> ItemWriter:
        return SequentialWriter(plan, target, self.files(plan, target, request))

    def is_apart(self, path: LeafPath) -> bool:
        """Any leaf is a part of them."""
        return False

    def check_leaves(self, leaves: Mapping[LeafPath, Output], request: Export) -> None:
        """Leaves stand beside each other."""

    def refuse_shards(self, request: Export) -> None:
        """Refuse ``shard`` where the format is one file.

        Raises:
            PlanError: it is given.
        """
        if request.shard is not None:
            raise PlanError(
                f"{self.name} is one file, and `shard` would cut it",
                fix="leave `shard` out, or write safetensors",
                field="output",
            )


class FlatFormat(Streamed):
    """Arrays by name: the keys of a path joined by ``separator``. A path of one key is called like that key."""

    separator: ClassVar[str]

    def place(self, path: LeafPath) -> LeafPath:
        return LeafPath((self.separator.join(map(str, path)),))

    def held(self, spec: LeafSpec) -> LeafSpec | None:
        return held_as_numpy(spec)

    def name_fault(self, path: LeafPath) -> str:
        """Every text is a name."""
        return ""

    def ordered(self, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        return together(leaves)


def held_as_numpy(spec: LeafSpec) -> LeafSpec | None:
    """As which array of NumPy a leaf is read again from a file that has no chunks; None for what has no values.

    Raises:
        KeyError: it is a text or a typed random key.
    """
    if spec.kind is LeafKind.EMPTY:
        return None
    if spec.kind not in HELD:
        raise KeyError(spec.kind)
    return replace(
        spec,
        kind=LeafKind.NUMPY,
        chunk_shape=None,
        write_shape=None,
        sharding=None,
        stored_bytes=spec.bytes,
    )


def refuse_suffix(target: Path, others: Sequence[str], format_name: str) -> None:
    """Refuse a destination that is called like a file of another format.

    Raises:
        PlanError: it is.
    """
    if target.suffix in others:
        raise PlanError(
            f"'{target.name}' is called like another format than {format_name}",
            why=f"readers tell what a file is by '{target.suffix}'",
            fix=f"name '{path_at(str(target)).with_suffix('').name}', or say the format that is meant",
            field="output",
        )
