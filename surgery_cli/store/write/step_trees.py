"""The trees of a step, and on which mesh most of their arrays are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain

from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.tree.sharding import usual_text


class StepTrees:
    """All trees that are edited together."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = tuple(items)
        self._in: dict[int, str | None] = {}

    @cached_property
    def usual_sharding(self) -> str | None:
        """Orbax's JSON for one over the mesh of most arrays; of another kind only where none has a mesh."""
        return _usual(self._items)

    def usual_in(self, item: Item) -> str | None:
        """As ``usual_sharding``, of one of the trees; None where it says none."""
        if id(item) not in self._in:
            self._in[id(item)] = _usual((item,))
        return self._in[id(item)]


def _usual(items: Iterable[Item]) -> str | None:
    trees = (item for item in items if isinstance(item, PytreeItem))
    files = [item.sidecars.sharding or {} for item in trees]
    said: Iterator[object] = chain.from_iterable(file.values() for file in files)
    return usual_text(text for text in said if isinstance(text, str))
