"""T5X checkpoints: a folder for every array, and a msgpack file that says with TensorStore specs where each stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from surgery_cli.errors import PlanError
from surgery_cli.settings.export import Export
from surgery_cli.store import filesystem
from surgery_cli.store.export.contract import NewFile
from surgery_cli.store.export.flat import refuse_suffix
from surgery_cli.store.export.msgpack import Msgpack
from surgery_cli.store.files.msgpack_tree import NewMsgpack
from surgery_cli.store.files.msgpack_writing import in_kind, write_msgpack
from surgery_cli.store.files.t5x import BITS_OF_BFLOAT16, NEW_SPEC, READ_VERSIONS, ROOTS, envelope
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.orbax.new_documents import grid_within, new_document
from surgery_cli.store.orbax.sidecars import AGGREGATE
from surgery_cli.store.orbax.zarr import ZARR2_DTYPES
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.per_leaf import PerLeafWriter
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.words.lists import quoted


class T5x(Msgpack):
    """A folder. Arrays of several numbers stand beside the msgpack file, all else in it."""

    name: ClassVar[str] = "t5x"
    is_marked: ClassVar[bool] = True
    dtypes: ClassVar[frozenset[str]] = frozenset(
        {"bfloat16", *ZARR2_DTYPES.values()} - {BITS_OF_BFLOAT16}
    )

    def name_fault(self, path: LeafPath) -> str:
        if path[0] not in ROOTS:
            return f"at its root T5X knows {quoted(ROOTS, 3)}: `rename` params to `target`"
        if "/" in stored_name(path):
            return "T5X calls a folder like the leaf, and a name with a slash is none"
        return super().name_fault(path)

    def check_destination(self, target: Path, request: Export) -> None:
        if request.shard is not None:
            raise PlanError(
                "`shard` says nothing of t5x",
                fix="leave it out: every array has a folder",
                field="output",
            )
        refuse_suffix(target, (".npz", ".msgpack", ".safetensors"), self.name)

    def ordered(self, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        return [_beside(leaf) if leaf.spec.size > 1 else _inline(leaf) for leaf in leaves]

    def new_files(self, plan: ItemPlan, target: Path, request: Export) -> list[NewFile]:
        beside = [NewFile(leaf.name, 1, leaf.spec.bytes) for leaf in plan.computed]
        inline = [leaf.spec.bytes for leaf in plan.of(Way.NONE)]
        return [*beside, NewFile(AGGREGATE, len(inline), sum(inline))]

    def writer(self, plan: ItemPlan, target: Path, request: Export) -> ItemWriter:
        return _Writer(plan, target, PerLeafWriter(target, 2, Linker(), buffered=True))


def _beside(leaf: PlannedLeaf) -> PlannedLeaf:
    grid = grid_within(leaf.spec.shape, leaf.spec.dtype)
    document = new_document(2, leaf.spec.shape, leaf.spec.dtype, grid=grid)
    return replace(leaf, name=stored_name(leaf.path), document=document)


def _inline(leaf: PlannedLeaf) -> PlannedLeaf:
    return replace(leaf, way=Way.NONE, name="")


class _Writer(ItemWriter):
    """Arrays as directories; the msgpack file comes last, as T5X has it."""

    def begin(self) -> None:
        """Make the folder; nothing is by reference."""
        filesystem.make_folder(self.target)

    def finish(self) -> None:
        super().finish()
        leaves = {leaf.path: self._value(leaf) for leaf in self.plan.leaves}
        source = NewMsgpack(envelope(READ_VERSIONS[-1]))
        write_msgpack(source, self.target / AGGREGATE, leaves)

    def _value(self, leaf: PlannedLeaf) -> object:
        """What stands for a leaf in the msgpack file."""
        if leaf.document is not None:
            return NEW_SPEC.of_array(leaf.name, leaf.document, leaf.spec.dtype)
        if leaf.path in self._packed:
            produce = self._packed[leaf.path]
            return lambda: in_kind(produce(), leaf.spec)
        if leaf.spec.empty:
            return None if leaf.spec.empty == "None" else {}
        assert leaf.origin is not None
        assert leaf.origin_path is not None
        return leaf.origin.read(leaf.origin_path)
