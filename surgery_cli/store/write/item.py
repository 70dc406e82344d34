"""Builds one new item: sidecars copied and rewritten, arrays placed and written, inline values packed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from surgery_cli.draft.recipe import Draft
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.filesystem.names import RECORD, is_leftover
from surgery_cli.store.locate.items import foreign_in_item
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import PytreeItem, ReadBefore
from surgery_cli.store.orbax.btree import DATA_FOLDERS, database_folders
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.per_leaf import PerLeafStore
from surgery_cli.store.orbax.sidecars import AGGREGATE, ARRAY_METADATAS, PROCESS_FILE
from surgery_cli.store.write.arrays import ArrayWriter, NoArrays
from surgery_cli.store.write.files import ConvertingWriter, MsgpackWriter, write_aggregate
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way, is_converted, planned
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.ocdbt import OcdbtWriter, folder_of_process
from surgery_cli.store.write.per_leaf import PerLeafWriter
from surgery_cli.store.write.raw_copies import Copies, everything
from surgery_cli.store.write.sidecars import write_sidecars
from surgery_cli.store.write.strategy import is_per_leaf


def open_writer(
    plan: ItemPlan,
    target: Path,
    linker: Linker,
    *,
    compact: bool,
    copies: Copies = everything,
    buffered: bool = False,
    shared: bool = False,
) -> ItemWriter:
    """The writer for an item's format; ``copies`` and ``buffered``: see ``OcdbtWriter``.

    ``shared``: other processes write to the same arrays. A folder for each leaf needs no more to be ``buffered``: what
    was sent of a batch can be gone on from.
    """
    if isinstance(plan.item, PytreeItem):
        arrays = _array_writer(
            plan.item,
            target,
            linker,
            compact=compact,
            copies=copies,
            buffered=buffered,
            shared=shared,
        )
        return PytreeWriter(plan, target, linker, arrays, buffered=buffered)
    assert isinstance(plan.item, FileItem)
    if not is_converted(plan.item):
        return MsgpackWriter(plan, target)
    return ConvertingWriter(plan, target, linker, buffered=buffered)


def carrying(item: PytreeItem, target: Path, linker: Linker, *, buffered: bool) -> ItemWriter:
    """What takes over a whole tree that no edit can touch (it was not chosen): data by link, the rest by copy."""
    leaves = Draft.of(item.tree, "").leaves
    plan = ItemPlan(item, [planned(item, p, p, recipe, item, p) for p, recipe in leaves.items()])
    return open_writer(plan, target, linker, compact=False, buffered=buffered)


def open_part(
    number: int, plan: ItemPlan, target: Path, linker: Linker, *, compact: bool, copies: Copies
) -> PartWriter:
    """The writer for what one of several processes makes of an item: of arrays, in no file of the others."""
    item = plan.item
    arrays: ArrayWriter = NoArrays()
    if isinstance(item, PytreeItem) and is_per_leaf(item):
        arrays = _array_writer(item, target, linker, compact=compact, copies=copies, shared=True)
    elif isinstance(item, PytreeItem):
        folder = folder_of_process(target, number)
        arrays = _array_writer(item, folder, linker, compact=True, copies=copies)
    elif is_converted(item):
        folder = folder_of_process(target, number)
        arrays = OcdbtWriter(folder, OcdbtStore(item.directory, 2), linker, compact=True)
    copied = copied_leaves(plan, compact=compact)
    return PartWriter(plan, target, arrays, copied)


class PartWriter(ItemWriter):
    """What one of several processes makes of an item; the first one brings it together, and writes the rest."""

    def __init__(
        self, plan: ItemPlan, target: Path, arrays: ArrayWriter, copied: Sequence[PlannedLeaf]
    ) -> None:
        super().__init__(plan, target, arrays)
        self._copied = copied

    def begin(self) -> None:
        """Copy what is copied as it is encoded."""
        if isinstance(self._arrays, OcdbtWriter):
            self._arrays.copy_raw(self._copied)


def copied_leaves(plan: ItemPlan, *, compact: bool) -> Sequence[PlannedLeaf]:
    """The leaves whose stored values pass through memory, encoded, on their way into a database."""
    if not isinstance(plan.item, PytreeItem) or is_per_leaf(plan.item):
        return ()
    return [leaf for leaf in plan.leaves if leaf.taken] if compact else plan.of(Way.RAW)


class PytreeWriter(ItemWriter):
    """An Orbax item directory, in the layout of its source."""

    def __init__(
        self, plan: ItemPlan, target: Path, linker: Linker, arrays: ArrayWriter, *, buffered: bool
    ) -> None:
        assert isinstance(plan.item, PytreeItem)
        super().__init__(plan, target, arrays)
        self.item = plan.item
        self._linker = linker
        self._buffered = buffered
        self._carrying: Future[None] | None = None

    def begin(self) -> None:
        """Place by reference; what is carried along comes meanwhile, where only a mark makes a checkpoint of it all."""
        filesystem.make_folder(self.target)
        if self._buffered and filesystem.needs_commit_mark(self.target):
            self._carrying = self._linker.meanwhile(self._carry_along)
        self._arrays.place(self.plan)

    def _carry_along(self) -> None:
        """Everything that is not array data: Orbax's small files, and files that are foreign to it."""
        left = foreign_in_item(Listing.of(self.item.directory)) if self.plan.is_new else []
        pairs = []
        for path in small_files(self.item):
            if any(path.is_relative_to(foreign) for foreign in left):
                continue
            target = self.target / path.relative_to(self.item.directory)
            filesystem.make_folders(target.parent)
            pairs.append((path, target))
        self._linker.copy_trees(pairs)

    def finish(self) -> None:
        if self._carrying is not None:
            self._carrying.result()
            super().finish()
        elif filesystem.requests_at_once(self.target) > 1:
            self._carrying = self._linker.meanwhile(self._carry_along)
            super().finish()
            self._carrying.result()
        else:
            super().finish()
            self._carry_along()
        write_sidecars(self.plan, self.target, self._linker)
        if self.item.aggregate is not None:
            write_aggregate(self.plan, self._packed, self.target / AGGREGATE)

    @property
    def read_before(self) -> ReadBefore:
        """What whoever opens the finished item need not parse again."""
        survey = self._arrays.survey if isinstance(self._arrays, OcdbtWriter) else None
        return ReadBefore(self.item.sidecars, survey)


def _array_writer(
    item: PytreeItem,
    target: Path,
    linker: Linker,
    *,
    compact: bool,
    copies: Copies,
    buffered: bool = False,
    shared: bool = False,
) -> ArrayWriter:
    store = item.store
    if isinstance(store, PerLeafStore):
        return PerLeafWriter(target, store.zarr, linker, buffered=not shared)
    if isinstance(store, OcdbtStore):
        return OcdbtWriter(target, store, linker, compact=compact, copies=copies, buffered=buffered)
    if item.aggregate is not None:
        return NoArrays()
    zarr = 3 if item.sidecars.use_zarr3 else 2
    if is_per_leaf(item):
        return PerLeafWriter(target, zarr, linker, buffered=not shared)
    fresh = OcdbtStore(item.directory, zarr)
    return OcdbtWriter(target, fresh, linker, compact=True, buffered=buffered)


def small_files(item: PytreeItem) -> list[Path]:
    """What stands in an item's directory beside array data: Orbax's sidecars, and what is foreign to it.

    Not its record: that is of the item as it was, and stands in the history of the one that is written. Nor what other
    runs have there, or have left there.
    """
    return [path for path in _beside_data(item) if not is_leftover(path.name)]


def _beside_data(item: PytreeItem) -> list[Path]:
    """Array data is what leaves name: folders with arrays that are no leaves (a backup) are foreign."""
    store = item.store
    if isinstance(store, OcdbtStore):
        data = {"manifest.ocdbt", RECORD, *DATA_FOLDERS}
        data |= {file.split("/", 1)[0] for file in store.survey.files}
        data |= {folder.name for folder in database_folders(item.directory)}
        return [item.directory / n for n in filesystem.names(item.directory) if n not in data]
    names = {leaf.array.name for leaf in item.leaves.values() if leaf.array is not None}
    found = list(_beside(item.directory, "", names, _folders_above(names)))
    bare = [leaf.array for leaf in item.leaves.values() if leaf.array and not leaf.array.name]
    own = {key.partition("/")[0] for array in bare for key in array.keys}
    found = [path for path in found if path.name not in {*own, RECORD}]
    if ARRAY_METADATAS in names:  # a leaf that is called like the folder of these sidecars
        folder = item.directory / ARRAY_METADATAS
        found += [folder / n for n in filesystem.names(folder) if n.startswith(PROCESS_FILE)]
    return found


def foreign_folders(item: PytreeItem) -> list[Path]:
    """Folders of a per-leaf item that hold no leaf and are not Orbax's."""
    if not isinstance(item.store, PerLeafStore):
        return []
    return [p for p in small_files(item) if filesystem.is_folder(p) and p.name != ARRAY_METADATAS]


def _beside(folder: Path, prefix: str, names: set[str], above: set[str]) -> Iterator[Path]:
    """What stands in a folder and holds no leaf; leaves with slashes in their keys lie in folders of their own."""
    for entry in filesystem.names(folder):
        name = prefix + entry
        if name in names:
            continue
        if name in above:
            yield from _beside(folder / entry, f"{name}/", names, above)
        else:
            yield folder / entry


def _folders_above(names: set[str]) -> set[str]:
    """The folders in which leaves lie whose names contain slashes."""
    return {
        name[:at] for name in names if "/" in name for at, char in enumerate(name) if char == "/"
    }
