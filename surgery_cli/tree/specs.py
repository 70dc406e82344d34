"""What metadata says of a leaf and of a tree, without reading a tensor."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

import msgspec

from surgery_cli.tree.dtypes import KNOWN_DTYPES, is_floating, is_integer, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.quantities import array_text


class LeafKind(StrEnum):
    """How the training script holds the leaf; a restore without target depends on it."""

    ARRAY = "array"
    """A ``jax.Array``."""
    NUMPY = "numpy"
    """A ``numpy.ndarray``."""
    SCALAR = "scalar"
    """A Python number; stored as an array without axes."""
    STRING = "string"
    KEY = "key"
    """A typed PRNG key array; ``shape`` and ``dtype`` are those of the stored key data."""
    EMPTY = "empty"
    """Something without values: None, ``{}``, ``[]``, ``()``; ``dtype`` is ''."""
    NO_TARGET = "no target"
    """Of a script's tree alone: a value that can be saved, and that a restore refuses to take as its target, such as a
    NumPy scalar; ``dtype`` is its class."""


class LeafSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A leaf as metadata describes it.

    ``empty`` is what stands there for kind EMPTY: ``None``, ``Dict``, ``List``, ``Tuple``, …
    ``chunk_shape`` is the shape of a stored chunk (the smallest thing that can be decoded; inside a shard, the
    inner chunk), ``write_shape`` that of the unit which is written whole; None where the format has no chunks.
    ``sharding`` is Orbax's own JSON for it. ``stored_bytes`` counts encoded bytes on disk.
    """

    kind: LeafKind
    shape: tuple[int, ...] = ()
    dtype: str = ""
    empty: str = ""
    key_impl: str | None = None
    chunk_shape: tuple[int, ...] | None = None
    write_shape: tuple[int, ...] | None = None
    sharding: str | None = None
    stored_bytes: int | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in memory; 0 for strings and empties."""
        return self.size * item_bytes(self.dtype) if self.has_array else 0

    @property
    def has_array(self) -> bool:
        """True if the value is stored as an array (arrays, scalars, keys)."""
        return self.kind not in (LeafKind.STRING, LeafKind.EMPTY, LeafKind.NO_TARGET)

    @property
    def type_text(self) -> str:
        """Shape and dtype as people read them: ``float32[3,3,1,32]``, ``key<fry>``, ``None``."""
        if self.kind is LeafKind.EMPTY:
            return {"Dict": "{}", "List": "[]", "Tuple": "()"}.get(self.empty, self.empty)
        if self.kind is LeafKind.STRING:
            return "str"
        if self.kind is LeafKind.SCALAR:
            return f"python {self.dtype}"
        if self.kind is LeafKind.NO_TARGET:
            return self.dtype
        name = f"key<{self.key_impl}>" if self.kind is LeafKind.KEY else self.dtype
        return array_text(name, self.shape)

    @property
    def held_text(self) -> str:
        """The type in words, with whose array it is."""
        return f"{self.type_text} of NumPy" if self.kind is LeafKind.NUMPY else self.type_text

    def agrees_with(self, other: LeafSpec) -> bool:
        """Same kind, shape, dtype and key implementation; storage is not compared."""
        return (self.kind, self.shape, self.dtype, self.empty, self.key_impl) == (
            other.kind,
            other.shape,
            other.dtype,
            other.empty,
            other.key_impl,
        )


def has_dtype(spec: LeafSpec, wanted: str) -> bool:
    """True if the leaf is of a dtype that ``wanted`` names: ``floating``, ``integer``, a name or a glob.

    Typed keys are stored as integers and are none; they are ``key<…>``.

    >>> has_dtype(LeafSpec(kind=LeafKind.ARRAY, dtype="int32"), "int*")
    True
    """
    if not spec.has_array:
        return False
    if spec.kind is LeafKind.KEY:
        return fnmatchcase(f"key<{spec.key_impl}>", wanted)
    if wanted == "floating":
        return is_floating(spec.dtype)
    if wanted == "integer":
        return is_integer(spec.dtype)
    return fnmatchcase(spec.dtype, wanted)


def names_dtype(wanted: str) -> bool:
    """True if any leaf can be of a dtype that ``wanted`` names, as `has_dtype` reads it.

    >>> names_dtype("int*"), names_dtype("key<*>"), names_dtype("flaot*")
    (True, True, False)
    """
    if wanted in ("floating", "integer") or wanted.startswith("key<"):
        return True
    return any(fnmatchcase(known, wanted) for known in (*KNOWN_DTYPES, *_KEYS))


_KEYS: Final = tuple(f"key<{impl}>" for impl in ("threefry2x32", "rbg", "unsafe_rbg"))
"""Typed keys of JAX's own implementations."""


def nodes_above(leaves: Iterable[LeafPath]) -> set[LeafPath]:
    """Every node above a leaf, the root included."""
    found: set[LeafPath] = {LeafPath()}
    for leaf in leaves:
        node = leaf.parent
        while node not in found:
            found.add(node)
            node = node.parent
    return found


def lists_in(paths: Iterable[LeafPath]) -> set[LeafPath]:
    """Every list that one of ``paths`` runs through."""
    return {
        LeafPath(path[:depth])
        for path in paths
        for depth, key in enumerate(path)
        if isinstance(key, int)
    }


def other_containers(
    paths: Collection[LeafPath], known: Mapping[str, str]
) -> Iterator[tuple[LeafPath, str, str]]:
    """The nodes above ``paths`` that are another container than ``known`` says by spelling, with what they are in both.

    What it does not name is a dict there.
    """
    lists = lists_in(paths)
    for node in sorted(nodes_above(paths), key=str):
        here = "list" if node in lists else "dict"
        if here != (there := known.get(node.spelling, "dict")):
            yield node, here, there


class TreeSpec(dict[LeafPath, LeafSpec]):
    """Every leaf of a tree, empties included, in stored order. A value: it is not changed once it is made."""

    def __repr__(self) -> str:
        return f"TreeSpec({len(self)} leaves, {self.bytes} bytes)"

    @property
    def bytes(self) -> int:
        """Bytes of all leaves in memory."""
        return sum(spec.bytes for spec in self.values())

    @cached_property
    def texts(self) -> dict[LeafPath, str]:
        """The printed path of every leaf."""
        return {path: path.text for path in self}

    @cached_property
    def printed(self) -> frozenset[str]:
        """The printed paths of all leaves."""
        return frozenset(self.texts.values())

    def named(self, text: str) -> list[LeafPath]:
        """The leaves with values that a text means: as a path is shown, else as its keys are, else as it is spelled."""
        return next((found for names in self._by_name if (found := names.get(text))), [])

    def has_below(self, text: str) -> bool:
        """True if leaves with values stand below what is called so: as paths are shown, or as their keys are."""
        names = self._names
        first = bisect_left(names, f"{text}/")
        return first < len(names) and names[first].startswith(f"{text}/")

    @cached_property
    def with_values(self) -> list[LeafPath]:
        """The leaves but those that are empty."""
        return [path for path, spec in self.items() if spec.kind is not LeafKind.EMPTY]

    @cached_property
    def _by_name(self) -> tuple[dict[str, list[LeafPath]], ...]:
        """The leaves with values by what each of the three ways calls them."""
        shown: dict[str, list[LeafPath]] = {}
        keys: dict[str, list[LeafPath]] = {}
        spelled: dict[str, list[LeafPath]] = {}
        for path in self.with_values:
            for name in {str(path), path.exact_pattern}:
                shown.setdefault(name, []).append(path)
            keys.setdefault(path.text, []).append(path)
            spelled.setdefault(path.spelling, []).append(path)
        return shown, keys, spelled

    @cached_property
    def _names(self) -> list[str]:
        return sorted({*map(str, self.with_values), *(path.text for path in self.with_values)})

    @cached_property
    def nodes(self) -> frozenset[LeafPath]:
        """Every node above a leaf, the root included."""
        return frozenset(nodes_above(self) if self else ())

    @cached_property
    def sequences(self) -> frozenset[LeafPath]:
        """The nodes that are lists or tuples; all others are dicts, whose keys may look like places in a list."""
        return frozenset(lists_in(self))

    def mapped(self, place: Callable[[LeafPath], LeafPath]) -> TreeSpec:
        """The same leaves under other paths."""
        return TreeSpec({place(path): spec for path, spec in self.items()})
