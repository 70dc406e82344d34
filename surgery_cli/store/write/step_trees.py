"""The trees of a step, and on which mesh most of their arrays are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain

from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.tree.sharding import NamedSharding, usual_mesh


class StepTrees:
    """All trees that are edited together."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = tuple(items)

    @cached_property
    def usual_sharding(self) -> str | None:
        """Orbax's JSON for one over the mesh of most arrays; of another kind only where none has a mesh."""
        trees = (item for item in self._items if isinstance(item, PytreeItem))
        files = [item.sidecars.sharding or {} for item in trees]
        said: Iterator[object] = chain.from_iterable(file.values() for file in files)
        texts = [text for text in said if isinstance(text, str)]
        known = {text: NamedSharding.of_text(text) for text in dict.fromkeys(texts)}
        mesh = usual_mesh(one for text in texts if (one := known[text]) is not None)
        over_it = (text for text, one in known.items() if one is not None and one.mesh == mesh)
        return next(over_it, next(iter(texts), None))
