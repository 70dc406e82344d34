"""Flax's msgpack: the state dict of a tree in one file, as ``flax.serialization.to_bytes`` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from msgspec.structs import replace

from surgery_cli.settings.export import Export
from surgery_cli.store.export.contract import Encoded, FileParts, Late, Part, Values
from surgery_cli.store.export.flat import Streamed, held_as_numpy, refuse_suffix
from surgery_cli.store.files.msgpack_scan import CHUNKED
from surgery_cli.store.files.msgpack_writing import (
    LARGEST_ARRAY_BYTES,
    array_head,
    chunk_heads,
    map_head,
    packed,
)
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.tree.dtypes import FLOATS, INTEGER_BITS, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

_NUMBERS: Final = ("bool", "int64", "float64")
"""Python numbers that msgpack has; those of another dtype are written as arrays without axes."""

_NUMBER_BYTES: Final = 9
_TEXT_BYTES: Final = 16
_Node: TypeAlias = "dict[str, _Node] | PlannedLeaf"


class Msgpack(Streamed):
    """One file. Sequences are dicts with the keys ``'0'``, ``'1'``, …, and what is empty is ``{}`` or None."""

    name: ClassVar[str] = "msgpack"
    dtypes: ClassVar[frozenset[str]] = frozenset(
        {"bool", *INTEGER_BITS, *FLOATS, "complex64", "complex128"}
    )

    def place(self, path: LeafPath) -> LeafPath:
        return LeafPath(map(str, path))

    def held(self, spec: LeafSpec) -> LeafSpec | None:
        if spec.kind is LeafKind.EMPTY:
            return LeafSpec(kind=spec.kind, empty="None" if spec.empty == "None" else "Dict")
        if spec.kind is LeafKind.STRING:
            return spec
        held = held_as_numpy(spec)
        is_number = spec.kind is LeafKind.SCALAR and spec.dtype in _NUMBERS
        kind = LeafKind.SCALAR if is_number else LeafKind.ARRAY
        return None if held is None else replace(held, kind=kind)

    def name_fault(self, path: LeafPath) -> str:
        return f"Flax keeps the key '{CHUNKED}' for arrays in parts" if CHUNKED in path else ""

    def check_destination(self, target: Path, request: Export) -> None:
        self.refuse_shards(request)
        refuse_suffix(target, (".npz", ".safetensors"), self.name)

    def ordered(self, leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
        """As they follow each other where each dict stands as a whole."""
        return list(_leaves(_nested(leaves)))

    def files(self, plan: ItemPlan, target: Path, request: Export) -> Sequence[FileParts]:
        return [FileParts("", list(_joined(_parts(_nested(plan.leaves)))))]


def _nested(leaves: Sequence[PlannedLeaf]) -> _Node:
    root: dict[str, _Node] = {}
    for leaf in leaves:
        *above, last = map(str, leaf.path)
        node = root
        for key in above:
            inner = node.setdefault(key, {})
            assert isinstance(inner, dict), f"'{leaf.path}' stands below a leaf"
            node = inner
        node[last] = leaf
    return root


def _leaves(node: _Node) -> Iterator[PlannedLeaf]:
    if isinstance(node, PlannedLeaf):
        yield node
        return
    for inner in node.values():
        yield from _leaves(inner)


def _parts(node: _Node) -> Iterator[Part]:
    if isinstance(node, PlannedLeaf):
        yield from _leaf_parts(node)
        return
    yield map_head(len(node))
    for key, inner in node.items():
        yield packed(key)
        yield from _parts(inner)


def _leaf_parts(leaf: PlannedLeaf) -> Iterator[Part]:
    spec = leaf.spec
    if spec.kind is LeafKind.EMPTY:
        yield packed(None if spec.empty == "None" else {})
    elif spec.kind is LeafKind.STRING:
        yield Late(partial(_text, leaf), _TEXT_BYTES)
    elif spec.kind is LeafKind.SCALAR:
        yield Encoded(leaf.path, lambda values: packed(values.item()), _NUMBER_BYTES)
    elif spec.bytes <= LARGEST_ARRAY_BYTES:
        yield array_head(spec.shape, spec.dtype, spec.bytes)
        yield Values(leaf.path, spec.bytes)
    else:
        width = item_bytes(spec.dtype)
        for head, part in chunk_heads(spec.shape, width):
            count = part.stop - part.start
            yield head + array_head((count,), spec.dtype, count * width)
            yield Values(leaf.path, count * width)


def _text(leaf: PlannedLeaf) -> bytes:
    assert leaf.origin is not None
    assert leaf.origin_path is not None
    text: Any = leaf.origin.read(leaf.origin_path)
    return packed(text)


def _joined(parts: Iterator[Part]) -> Iterator[Part]:
    """The same parts, with bytes that follow each other as one."""
    known = b""
    for part in parts:
        if isinstance(part, bytes):
            known += part
            continue
        if known:
            yield known
            known = b""
        yield part
    if known:
        yield known
