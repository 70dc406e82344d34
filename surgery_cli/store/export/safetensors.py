"""Safetensors as Hugging Face's readers expect them: one file, or shards with an index.

Source: https://github.com/huggingface/safetensors#format, and ``huggingface_hub.split_torch_state_dict_into_shards``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.settings.export import Export
from surgery_cli.store.export.contract import FileParts, Values
from surgery_cli.store.export.flat import FlatFormat, refuse_suffix
from surgery_cli.store.files.safetensors import CODES, LARGEST_HEADER_BYTES, METADATA
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.quantities import byte_text

SUFFIX: Final = ".safetensors"
_ALIGNED_BYTES: Final = 8
_FORMAT: Final = {"format": "pt"}
"""Without it `transformers` of release 4 refuses a file: it says that names are those of a PyTorch model."""


class Safetensors(FlatFormat):
    """A destination that ends in ``.safetensors`` is one file, any other a directory of them."""

    name: ClassVar[str] = "safetensors"
    separator: ClassVar[str] = "."
    dtypes: ClassVar[frozenset[str]] = frozenset(CODES)

    def name_fault(self, path: LeafPath) -> str:
        return f"the format keeps '{METADATA}' for itself" if path == (METADATA,) else ""

    def check_destination(self, target: Path, request: Export) -> None:
        refuse_suffix(target, (".npz", ".msgpack"), self.name)
        if target.suffix == SUFFIX and request.shard is not None:
            raise PlanError(
                f"'{target.name}' is one file, and `shard` would cut it",
                why=f"a destination that ends in `{SUFFIX}` is one file",
                fix="leave `shard` out, or name a directory",
                field="output",
            )

    def ordered(self, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        """Wider dtypes first, as the format's own writer does: every array then begins at a multiple of its width."""
        return sorted(super().ordered(leaves), key=lambda leaf: -item_bytes(leaf.spec.dtype))

    def files(self, plan: ItemPlan, target: Path, request: Export) -> list[FileParts]:
        if target.suffix == SUFFIX:
            return [safetensors_file("", plan.leaves)]
        shards = list(_shards(plan.leaves, request.shard_bytes))
        if len(shards) < 2:
            return [safetensors_file(f"model{SUFFIX}", plan.leaves)]
        count = f"{len(shards):05d}"
        names = [f"model-{number:05d}-of-{count}{SUFFIX}" for number in range(1, len(shards) + 1)]
        files = [safetensors_file(name, shard) for name, shard in zip(names, shards, strict=True)]
        return [*files, FileParts(f"model{SUFFIX}.index.json", [_index(names, shards)])]


def _shards(leaves: Sequence[PlannedLeaf], most: int) -> Iterator[list[PlannedLeaf]]:
    """The leaves in their order, as many together as fit; one that is larger stands alone."""
    shard: list[PlannedLeaf] = []
    held = 0
    for leaf in leaves:
        if shard and held + leaf.spec.bytes > most:
            yield shard
            shard, held = [], 0
        shard.append(leaf)
        held += leaf.spec.bytes
    if shard:
        yield shard


def safetensors_file(name: str, leaves: Sequence[PlannedLeaf]) -> FileParts:
    """A file of these leaves, in their order."""
    values = [Values(leaf.path, leaf.spec.bytes) for leaf in leaves]
    return FileParts(name, [_header(leaves), *values])


def _header(leaves: Iterable[PlannedLeaf]) -> bytes:
    """What stands before the values: names, dtypes, shapes and places, filled up so that the values are aligned.

    Raises:
        PlanError: it is longer than readers take.
    """
    entries: dict[str, object] = {METADATA: _FORMAT}
    at = 0
    for leaf in leaves:
        spec = leaf.spec
        place = [at, at + spec.bytes]
        entries[str(leaf.path[0])] = {
            "dtype": CODES[spec.dtype],
            "shape": spec.shape,
            "data_offsets": place,
        }
        at += spec.bytes
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % _ALIGNED_BYTES)
    if len(header) > LARGEST_HEADER_BYTES:
        raise PlanError(
            f"the header of a file would have {byte_text(len(header))}",
            why=f"readers take {byte_text(LARGEST_HEADER_BYTES)}, and it names {len(entries):,} arrays",
            fix="write smaller files: `shard: 1GB`",
            field="output",
        )
    return len(header).to_bytes(_ALIGNED_BYTES, "little") + header


def _index(names: Sequence[str], shards: Sequence[Sequence[PlannedLeaf]]) -> bytes:
    """Which file holds which array."""
    every = zip(names, shards, strict=True)
    places = {str(leaf.path[0]): name for name, shard in every for leaf in shard}
    total = sum(leaf.spec.bytes for shard in shards for leaf in shard)
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    return json.dumps(document, indent=2).encode() + b"\n"
