"""What stands for the structure of a broken checkpoint: another checkpoint's, or what a script's function returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from surgery_cli.errors import PlanError
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.salvage.structure import WHOLE, Likeness, structure_of
from surgery_cli.script.abstract_tree import AbstractTree
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.sidecars import value_type
from surgery_cli.tree.paths import stored_name
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import quoted

Alike: TypeAlias = Callable[[str], Likeness | None]
"""What stands for the structure of an item, by its name."""


_ARRAYS = (LeafKind.ARRAY, LeafKind.NUMPY)


def like_nothing(_: str) -> None:
    """No structure is known from elsewhere."""


def like_checkpoint(other: Checkpoint, place: BrokenPlace) -> Alike:
    """The items of the same names; one tree alone is what those are like of which it names all that is stored."""
    found: dict[str, Item] = {
        name: other.items[name] for name in place.items if name in other.items
    }
    if not found and len(other.items) == 1:
        (only,) = other.items.values()
        names = {stored_name(path) for path in only.tree}
        found = {
            name: only
            for name, folder in place.items.items()
            if len(place.items) == 1 or frozenset() < _stored_in(folder) <= names
        }

    def alike(name: str) -> Likeness | None:
        item = found.get(name)
        if not isinstance(item, PytreeItem) or not item.sidecars.values:
            return None
        arrays = {} if item.store is None else item.store.arrays
        documents = {one.name: (one.document.raw, str(item.directory)) for one in arrays.values()}
        return Likeness(item.sidecars.values, "another checkpoint", documents=documents)

    return alike


def refuse_unlike(alike: Alike, place: BrokenPlace, text: str) -> None:
    """Refuse what was named to give the structure of a broken checkpoint, and gives that of none of its items.

    Raises:
        PlanError: so; with their names.
    """
    lost = [name for name, folder in place.items.items() if _has_no_structure(folder)]
    if lost and len(place.items) > 1 and not any(alike(name) for name in lost):
        raise PlanError(
            f"'{text}' is like none of {quoted(lost, word='and')}",
            why="it has no items of these names, or a tree that does not name all that is stored in one of them",
            fix=f"name the item that it is like, as '{place.items[lost[0]]}', or another checkpoint",
        )


def _stored_in(folder: Path) -> frozenset[str]:
    """The stored names of the arrays that are left of an item."""
    return frozenset() if filesystem.is_file(folder) else frozenset(BrokenItem(folder).arrays)


def _has_no_structure(folder: Path) -> bool:
    return not filesystem.is_file(folder) and structure_of(folder).origin not in WHOLE


def like_script(abstract: AbstractTree) -> Alike:
    """What a function returns under the name of the item, else all that it returns."""

    def alike(name: str) -> Likeness:
        is_named = any(path[:1] == (name,) for path in abstract.tree)
        tree = (abstract.below(name) if is_named else abstract).tree
        entries = {
            path: {"value_type": value_type(spec), "skip_deserialize": spec.kind is LeafKind.EMPTY}
            for path, spec in tree.items()
        }
        arrays = [path for path, spec in tree.items() if spec.kind in _ARRAYS]
        return Likeness(entries, "a script's function", arrays)

    return alike
