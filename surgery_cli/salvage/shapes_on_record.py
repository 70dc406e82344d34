"""The shape of a lost array, as far as small files tell: in which blocks it was written, and over which mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from surgery_cli.proof.sharding_file import sharding_fault
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.side_documents import json_at
from surgery_cli.store.orbax.sidecars import SHARDING, sharding_key
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.sharding import Mesh, NamedSharding

_ONE_DEVICE: Final = '"SingleDeviceSharding"'


class RecordedShapes:
    """What is on record of the arrays of a tree, whether anything else of them is left or not."""

    def __init__(self, item: BrokenItem) -> None:
        self._item = item

    def against(self, path: LeafPath, shape: Sequence[int]) -> str:
        """Why the array at ``path`` cannot have been of that shape, in words; '' if nothing speaks against it.

        Where what is on record disagrees with itself, agreeing with any of it is enough.
        """
        said = list(self._blocks(path))
        fitting = [block for block in said if _are_blocks_of(shape, block)]
        if not fitting:
            return f"was written in blocks of {said[0]}" if said else ""
        spread = self._meshes.get(stored_name(path))
        if spread is None or any(_is_spread(shape, block, spread) for block in fitting):
            return ""
        parts = list(spread.counts(len(shape)))
        return f"was written in blocks of {fitting[0]}, its axes split in {parts}"

    def _blocks(self, path: LeafPath) -> Iterator[list[int]]:
        structure = self._item.structure
        entry: dict[str, Any] = structure.entries.get(path, {})
        for one in (entry, *structure.recorded.get(stored_name(path), ())):
            block = one.get("write_shape")
            if isinstance(block, list) and all(type(n) is int and n >= 0 for n in block):
                yield block

    @cached_property
    def _meshes(self) -> dict[str, NamedSharding]:
        """How arrays were spread, by stored name: if that is so of those that are there, as an edit may keep a mesh."""
        document = json_at(self._item.directory, SHARDING, {})
        texts = document if isinstance(document, dict) else {}
        found, are_known = {}, False
        for path in self._item.structure.entries:
            name = stored_name(path)
            text, array = texts.get(sharding_key(name)), self._item.arrays.get(name)
            spread = _read(text) if isinstance(text, str) else None
            if spread is None:
                continue
            found[name] = spread
            blocks = list(self._blocks(path))
            if array is None or not blocks:
                continue
            shape = array.document.shape
            are_known = True
            if not any(_are_blocks_of(shape, b) and _is_spread(shape, b, spread) for b in blocks):
                return {}
        return found if are_known else {}


def _read(text: str) -> NamedSharding | None:
    if _ONE_DEVICE in text and not sharding_fault(text):
        return NamedSharding(Mesh((), ()))
    return NamedSharding.of_text(text)


def _are_blocks_of(shape: Sequence[int], block: Sequence[int]) -> bool:
    """True if an array of that shape can be written in such blocks, whatever the mesh."""
    return len(shape) == len(block) and all(
        size % part == 0 if part else not size for size, part in zip(shape, block, strict=True)
    )


def _is_spread(shape: Sequence[int], block: Sequence[int], spread: NamedSharding) -> bool:
    """True if such blocks, one of each part, make up an array of that shape.

    Orbax may cut what replicas share once more, along one axis, so that each of them writes some of it.

    Source: ``replica_slices.py`` of orbax-checkpoint.
    """
    counts = spread.counts(len(shape))
    held = [part * count for part, count in zip(block, counts, strict=True)]
    if any(size % part if part else size for size, part in zip(shape, held, strict=True)):
        return False
    cuts = [size // part for size, part in zip(shape, held, strict=True) if size != part]
    replicas = spread.mesh.size // math.prod(counts)
    return not cuts or (len(cuts) == 1 and replicas % cuts[0] == 0)
