"""A checkpoint: the step that an argument names, with all its pytree items as one tree."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import Replaced, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.files import fingerprints
from surgery_cli.store.filesystem.listing import PassingOver, is_tree, reading
from surgery_cli.store.locate.location import Location, locate
from surgery_cli.store.locate.runs import addresses_beside, run_of
from surgery_cli.store.locate.step_formats import step_formats
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.formats import open_item
from surgery_cli.store.open.item import Item, PytreeItem, ReadBefore
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, Window, read_array
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.tree.dtypes import Rounding
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


class Checkpoint:
    """What one argument names, opened from metadata alone.

    Several pytree items stand under their names; a single one stands at the root of the tree.
    """

    def __init__(self, location: Location, before: Mapping[str, ReadBefore] | None = None) -> None:
        """Open the items; ``before``: what was read before and may stand in them, by their names."""
        self.location = location
        known = before or {}
        self.items: dict[str, Item] = {
            name: open_item(path, known.get(name)) for name, path in location.items.items()
        }
        self._versions = fingerprints.versions(location.items.values())
        self.read_beside: dict[Path, bytes | None] = {}  # what `beside` was asked for

    @cached_property
    def tree(self) -> TreeSpec:
        if not self.location.prefix_items:
            with reading(self.location.root):
                return next(iter(self.items.values())).tree
        return TreeSpec(
            {
                LeafPath((name, *path)): spec
                for name in self.items
                for path, spec in self._tree_of(name).items()
            }
        )

    def _tree_of(self, name: str) -> TreeSpec:
        """The tree of one of several items.

        Raises:
            CheckpointError: it cannot be read; how to leave it out is said.
        """
        try:
            with reading(self.items[name].directory):
                return self.items[name].tree
        except CheckpointError as error:
            other = next(one for one in self.items if one != name)
            way_out = f"; or choose another item: `--item {other}` carries this one along"
            raise error.retold(
                msgspec.structs.replace(problem, fix=problem.fix + way_out)
                for problem in error.problems
            ) from None

    @cached_property
    def unchosen(self) -> dict[str, PytreeItem | CheckpointError]:
        """The trees of the step that were not chosen, opened; for one that cannot be read, why."""
        found: dict[str, PytreeItem | CheckpointError] = {}
        for name, path in self.location.other_items.items():
            if is_tree(path):
                found[name] = item = PytreeItem(path)
                try:
                    with reading(path):
                        _ = item.leaves
                except CheckpointError as error:
                    found[name] = error
        return found

    def place(self, path: LeafPath) -> tuple[str, LeafPath]:
        """The item in which a leaf of the tree stands, and its path in it.

        Raises:
            KeyError: the path's first key names no item.
        """
        if not self.location.prefix_items:
            return next(iter(self.items)), path
        name = str(path[0])
        if name not in self.items:
            raise KeyError(name)
        return name, LeafPath(path[1:])

    def path_in(self, item: str, inner: LeafPath) -> LeafPath:
        """The path in the tree of a leaf of an item: what ``place`` takes apart."""
        return LeafPath((item, *inner)) if self.location.prefix_items else inner

    def item_of(self, path: LeafPath) -> tuple[Item, LeafPath]:
        name, inner = self.place(path)
        return self.items[name], inner

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf's values, or a block of them; see ``Item.read``."""
        item, inner = self.item_of(path)
        with reading(item.directory):
            return item.read(inner, window)

    def read_rounded(self, path: LeafPath, window: Window, rounding: Rounding) -> Any:
        """See ``RoundsAsItDecodes``."""
        found = self.array_of(path)
        if found is None or found[1].document.dtype != rounding.stored:
            return None
        with reading(found[0].directory):
            return read_array(found[0], found[1].name, window, rounding.to)

    def expect(self, paths: Iterable[LeafPath]) -> None:
        """These leaves will be read, in any order: where reads are requests, small neighbours come in one."""
        if filesystem.requests_at_once(self.location.root) == 1:
            return
        wanted: dict[int, tuple[ArrayStore, list[str]]] = {}
        places: dict[Path, list[tuple[int, int]]] = {}
        for path in paths:
            item, inner = self.item_of(path)
            if isinstance(item, FileItem):
                file, ranges = item.ranges_of(inner)
                places.setdefault(file, []).extend(ranges)
            elif (found := self.array_of(path)) is not None:
                store, array = found
                wanted.setdefault(id(store), (store, []))[1].append(array.name)
        for file, ranges in places.items():
            filesystem.expect(file, ranges)
        for store, names in wanted.values():
            store.expect(names)

    def array_of(self, path: LeafPath) -> tuple[ArrayStore, StoredArray] | None:
        """The stored array of a leaf, where it has one."""
        item, inner = self.item_of(path)
        if not isinstance(item, PytreeItem) or item.store is None:
            return None
        array = item.leaves[inner].array
        return None if array is None else (item.store, array)

    def identity(self, path: LeafPath) -> Hashable | None:
        item, inner = self.item_of(path)
        return item.identity(inner)

    @property
    def fingerprint(self) -> str:
        """A digest over every item's; it changes when the checkpoint does, and costs no tensor bytes."""
        return self._before[0]

    @cached_property
    def _before(self) -> tuple[str, list[int]]:
        with reading(self.location.root):
            return self._now()

    @property
    def tells_kinds(self) -> bool:
        files = (item for item in self.items.values() if isinstance(item, FileItem))
        return all(file.tells_kinds for file in files)

    def beside(self, name: str) -> bytes | None:
        """What is in a small file of this name in the folder that was named; None if there is none."""
        with reading(root := self.location.root):
            return self.read_beside.setdefault(root / name, filesystem.read_if_any(root / name))

    def is_unchanged(self, *, as_seen: bool = False) -> bool:
        """True if metadata and data files still are what the fingerprint was taken of; ``as_seen``: just looked up."""
        with PassingOver(OSError, CheckpointError):
            if not as_seen:
                filesystem.forget(self.place_on_disk)
            return not self.first_replaced() and self._now() == self._before
        return False

    def has_changed(self) -> bool:
        """True if a fingerprint can be taken still, and is another: whatever else failed, this may be why."""
        try:
            return self._now() != self._before
        except (OSError, CheckpointError):
            return False

    def check_as_opened(self) -> None:
        """In a bucket, every object must still be the one that was found when this was opened.

        What is read of objects one by one is asked for by its version; TensorStore's driver asks for what is there.

        Raises:
            CheckpointError: one of them was replaced or removed.
        """
        if not self._versions:
            return
        with reading(self.location.root):
            filesystem.forget(self.place_on_disk)
            if replaced := self.first_replaced():
                raise Replaced(replaced)

    def first_replaced(self) -> str:
        """In a bucket, the first object that is no longer the one that was found; '' if all are."""
        now = fingerprints.versions(self.location.items.values())
        found = self._versions.items()
        return next((str(place) for place, version in found if now.get(place) != version), "")

    def _now(self) -> tuple[str, list[int]]:
        """The fingerprint, which copies have as well, and when the data files of databases were written last."""
        stores = (getattr(item, "store", None) for item in self.items.values())
        written = [at for one in stores if isinstance(one, OcdbtStore) for at in one.times()]
        return self._fingerprint_now(), written

    def _fingerprint_now(self) -> str:
        items = ((name, item.fingerprint()) for name, item in self.items.items())
        step = self.location.step_directory
        beside = None if step is None else filesystem.read_if_any(step / "_CHECKPOINT_METADATA")
        return fingerprints.of_items(items, beside or b"")

    @property
    def address(self) -> str:
        """Text that opens this step again: an absolute path, `ROOT@N` for a step of a root."""
        return self.location.address

    def address_of(self, item: str | None) -> str:
        """Text that opens an item of it again, if one was chosen, else all of it."""
        place = self.location.items.get(item or "")
        return self.address if item is None or place is None else str(place)

    @property
    def places(self) -> frozenset[str]:
        """The real paths of the items: equal for a root, its step and the item in it, if that is the only one."""
        return frozenset(str(filesystem.real(path)) for path in self.location.items.values())

    @cached_property
    def _run(self) -> Location:
        return run_of(self.location)

    @property
    def step(self) -> int | None:
        """The step that it is, of a run with several; None where there are no steps."""
        return self._run.step

    @property
    def steps(self) -> dict[int, str]:
        """The finished steps of the run, with an address for each."""
        return addresses_beside(self.location, self._run)

    @property
    def step_formats(self) -> list[str]:
        return [str(one) for one in step_formats(self._run.step_names)]

    @property
    def layout(self) -> str:
        """The layouts of the items, each once."""
        return ", ".join(dict.fromkeys(item.layout for item in self.items.values()))

    @property
    def inferred_items(self) -> list[str]:
        """Names of the items whose tree no file describes ('' for one without a name)."""
        return [
            name
            for name, item in self.items.items()
            if isinstance(item, PytreeItem) and item.is_inferred
        ]

    @property
    def dead_bytes(self) -> int:
        return sum(item.dead_bytes for item in self.items.values())

    @property
    def place_on_disk(self) -> Path:
        """The directory or file in which nothing may be written."""
        return self.location.place_on_disk


def open_checkpoint(text: str, *, step: int | None = None, item: str | None = None) -> Checkpoint:
    """Open what ``text`` names, from metadata alone.

    Raises:
        CheckpointError: it is no checkpoint, unfinished or damaged.
        SurgeryError: it names several things, or a step or item that is not there.
    """
    with reading(path_at(text)):
        location = locate(text, step=step, item=item)
        if location.step_directory is not None:
            filesystem.fetch([location.step_directory / "_CHECKPOINT_METADATA"])
        checkpoint = Checkpoint(location)
    if not checkpoint.items:
        raise CheckpointError(
            f"'{text}' holds no tree of leaves",
            why="none of its items is a pytree",
            fix="name the step or item that holds params",
        )
    return checkpoint
