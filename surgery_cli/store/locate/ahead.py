"""What a command opens is asked for while the rest of the program is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from surgery_cli.inputs.addresses import Address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.request_counts import counted_from_here
from surgery_cli.store.locate.argument import WITH_STEP
from surgery_cli.store.locate.items import STEP_METADATA
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, METADATA, SHARDING, STRINGS

OF_ITEM: Final = (METADATA, SHARDING, STRINGS, MANIFEST)
"""What is read of an item before its arrays are, and the files in ``array_metadatas``."""


@contextmanager
def asked_ahead(places: Iterable[Address]) -> Iterator[None]:
    """Inside, where a look takes requests, those for the places are under way; `@N` is left to who finds that step.

    What goes wrong is said by whoever opens them.
    """
    steps = ((text, WITH_STEP.fullmatch(text)) for text in places)
    begun = [path_at(text if found is None else found[1]) for text, found in steps]
    with counted_from_here():
        try:
            for place in begun:
                filesystem.system_of(place).begin(place, documents_among)
            yield
        finally:
            for place in begun:
                filesystem.forget(place)


def documents_among(names: Sequence[str]) -> list[str]:
    """What is read first of a checkpoint; of one with several items nothing: they are chosen from.

    >>> documents_among(["_METADATA", "_sharding", "array_metadatas/process_0", "d/0f", "manifest.ocdbt"])
    ['_METADATA', '_sharding', 'array_metadatas/process_0', 'manifest.ocdbt']
    >>> documents_among(["_CHECKPOINT_METADATA", "params/_METADATA", "state/_METADATA"])
    []
    """
    items = [name.removesuffix(METADATA) for name in names if f"/{name}".endswith(f"/{METADATA}")]
    if len(items) != 1:
        return []
    inside = [name.removeprefix(items[0]) for name in names if name.startswith(items[0])]
    of_item = [items[0] + name for name in documents_of_item(inside)]
    return [name for name in names if name == STEP_METADATA] + of_item


def documents_of_item(names: Sequence[str]) -> list[str]:
    """As ``documents_among``, of an item by itself."""
    return [name for name in names if name in OF_ITEM or name.startswith(f"{ARRAY_METADATAS}/")]
