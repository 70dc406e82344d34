"""The trees of a step, and on which devices most of their arrays are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain

from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.tree.devices import usual_sharding
from surgery_cli.tree.specs import LeafSpec


class StepTrees:
    """All trees that are edited together."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = tuple(items)
        self._usual: dict[tuple[int, bool], str | None] = {}

    @cached_property
    def usual_sharding(self) -> str | None:
        """Orbax's JSON for one over the devices of most arrays."""
        return usual_sharding(chain.from_iterable(map(_specs, self._items)))

    def usual_in(self, item: Item) -> str | None:
        """As ``usual_sharding``, of one of the trees; None where it says none."""
        return self._found(item, _specs(item), is_left=False)

    def usual_left(self, item: Item, left: Iterable[LeafSpec]) -> str | None:
        """As ``usual_in``, of the arrays that a plan leaves of a tree."""
        return self._found(item, left, is_left=True)

    def _found(self, item: Item, specs: Iterable[LeafSpec], *, is_left: bool) -> str | None:
        key = id(item), is_left
        if key not in self._usual:
            self._usual[key] = usual_sharding(specs)
        return self._usual[key]


def _specs(item: Item) -> Iterable[LeafSpec]:
    return item.tree.values() if isinstance(item, PytreeItem) else ()
