"""What is asked of a service where the result is built beside its place, and put there in the end."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS
from surgery_cli.store.write.commit_marks import companion_of
from surgery_cli.store.write.item_plan import is_converted
from surgery_cli.store.write.strategy import is_per_leaf
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.request_tally import Tally

LINE_BYTES: Final = 40
"""What is noted of an object that was placed, about: its name, and its version."""

_OTHERS_OF_REPLACED: Final = 3
"""What stands there is looked up once more, object by object where its versions are not known, and its marks go."""

_OTHERS_OF_REPLACED_ALONE: Final = 4
"""The same lists, where those of a journal do not tell of it."""

_OTHERS_OF_BUILT_BESIDE: Final = 6
"""Lists of what was built beside its place, before it is copied there and when it goes."""

_INVENTORY_LINE_BYTES: Final = 90
"""What an inventory says of an object, about: that, its size and its digest."""


ITSELF: Final = ""
"""The path in a destination of the destination, which is a single file."""


class BuiltNames(NamedTuple):
    """The objects of a result, as far as their names are known beforehand, by their paths in the destination."""

    files: frozenset[str]
    folders: frozenset[PurePosixPath] = frozenset()
    """Those right in which every file has a name that another result of the kind has as well."""
    arrays: frozenset[PurePosixPath] = frozenset()
    """As ``folders``, at any depth."""

    def holds(self, path: str) -> bool:
        """True if a file of that path is one of them."""
        above = PurePosixPath(path).parents
        is_alike = not self.folders.isdisjoint(above[:1]) or not self.arrays.isdisjoint(above)
        return path in self.files or is_alike


def add_replacing(
    tally: Tally, built: BuiltNames, target: Path, *, is_taken: bool, is_noted: bool
) -> None:
    """What was built beside is copied to its place by the service, and goes; so does what ``--force`` replaces, and
    what has no name that the new one has. ``is_noted``: in a journal.
    """
    gone = stood = 0
    tally.other(_OTHERS_OF_BUILT_BESIDE)
    if is_taken:
        tally.other(_OTHERS_OF_REPLACED)
        tally.other(0 if is_noted else _OTHERS_OF_REPLACED_ALONE)
        old = _stands(target)
        stood = len(old)
        gone = sum(not built.holds(path) for path in old)
        if filesystem.is_folder(target):
            # before anything is written, unless a journal tells of it, and when it is replaced
            for _ in range(1 if is_noted else 2):
                tally.list_destination(stood)
        tally.list_destination()
    tally.list_destination()
    tally.replace(gone)
    tally.list_destination()  # what was put there is looked at once more
    # which objects those are, and what stood there, is written down before
    size = tally.built.requests * _INVENTORY_LINE_BYTES + stood * LINE_BYTES
    tally.write_beside(1, size)
    tally.other(1)


def _stands(target: Path) -> list[str]:
    """What is to be replaced, by its paths in the destination; with a single file its record goes, which is beside."""
    if filesystem.is_folder(target):
        return [path for path, _ in files_below(target)]
    record = companion_of(target)
    return [ITSELF, *([record.name] if filesystem.is_file(record) else [])]


def names_built(prepared: Prepared) -> BuiltNames:
    """Of a checkpoint: folders of items have files of the same names as another's, and so have arrays with folders."""
    files, folders, arrays = set[str](), set[PurePosixPath](), set[PurePosixPath]()
    for plan in prepared.plans.values():
        place = plan.item.directory.relative_to(prepared.checkpoint.location.root)
        item = PurePosixPath(place.as_posix())
        if isinstance(plan.item, FileItem) and not is_converted(plan.item):
            files.add(ITSELF)
        folders.update((item, item.parent, item / ARRAY_METADATAS))
        if is_per_leaf(plan.item):
            arrays.update(item / leaf.name for leaf in plan.leaves)
    return BuiltNames(frozenset(files), frozenset(folders), frozenset(arrays))
