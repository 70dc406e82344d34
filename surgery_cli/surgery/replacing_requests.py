"""What is asked of a service where the result is built beside its place, and put there in the end."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS
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


def add_replacing(
    tally: Tally, prepared: Prepared, target: Path, *, is_taken: bool, is_noted: bool
) -> None:
    """What was built beside is copied to its place by the service, and goes; so does what ``--force`` replaces, and
    what has no name that the new one has. ``is_noted``: in a journal.
    """
    gone = stood = 0
    tally.other(_OTHERS_OF_BUILT_BESIDE)
    if is_taken:
        tally.other(_OTHERS_OF_REPLACED)
        tally.other(0 if is_noted else _OTHERS_OF_REPLACED_ALONE)
        if filesystem.is_folder(target):
            below = [PurePosixPath(path).parents for path, _ in files_below(target)]
            stood = len(below)
            items, arrays = _folders_named_alike(prepared)
            gone = sum(folders[0] not in items and arrays.isdisjoint(folders) for folders in below)
            for _ in range(2):  # before anything is written, and when it is replaced
                tally.list_destination(stood)
        tally.list_destination()
    tally.list_destination()
    tally.replace(gone)
    tally.list_destination()  # what was put there is looked at once more
    # which objects those are, and what stood there, is written down before
    size = tally.built.requests * _INVENTORY_LINE_BYTES + stood * LINE_BYTES
    tally.write_beside(1, size)
    tally.other(1)


def _folders_named_alike(prepared: Prepared) -> tuple[set[PurePosixPath], set[PurePosixPath]]:
    """Folders whose files have names that another checkpoint's have as well: of items, and at any depth of arrays."""
    items, arrays = set[PurePosixPath](), set[PurePosixPath]()
    for plan in prepared.plans.values():
        place = plan.item.directory.relative_to(prepared.checkpoint.location.root)
        item = PurePosixPath(place.as_posix())
        items.update((item, item.parent, item / ARRAY_METADATAS))
        if is_per_leaf(plan.item):
            arrays.update(item / leaf.name for leaf in plan.leaves)
    return items, arrays
