"""What stands for the structure of a broken checkpoint: another checkpoint's, or what a script's function returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from surgery_cli.salvage.structure import Likeness
from surgery_cli.script.abstract_tree import AbstractTree
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.sidecars import value_type
from surgery_cli.tree.specs import LeafKind

Alike: TypeAlias = Callable[[str], Likeness | None]
"""What stands for the structure of an item, by its name."""


_ARRAYS = (LeafKind.ARRAY, LeafKind.NUMPY)


def like_nothing(_: str) -> None:
    """No structure is known from elsewhere."""


def like_checkpoint(other: Checkpoint) -> Alike:
    """The items of the same names; where there is one, that."""

    def alike(name: str) -> Likeness | None:
        only = next(iter(other.items.values())) if len(other.items) == 1 else None
        item = other.items.get(name, only)
        if not isinstance(item, PytreeItem) or not item.sidecars.values:
            return None
        return Likeness(item.sidecars.values, "another checkpoint")

    return alike


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
