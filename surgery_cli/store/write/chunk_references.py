"""Stored chunks that another array can refer to: what moves elements may leave the bytes of whole chunks alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.expression import InputSpecs, LeafRef, Made, Recipe, Stored, parts, stored_in
from surgery_cli.draft.kernel import Piece, Window
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.store.orbax.zarr import ArrayDocument


class Taken(msgspec.Struct, frozen=True, gc=False):
    """Stored values that are taken as they are: ``array`` has no others, and ``to`` are the keys that they get."""

    store: ArrayStore
    array: StoredArray
    to: tuple[str, ...]


class Referred(msgspec.Struct, frozen=True, gc=False):
    """Of an array, the chunks that others hold already, and the windows of those that are to be written.

    ``is_read``: a leaf that it is made of has a digest on record. All of it is read, though not written: to be held
    against that, and to get a digest of its own.
    """

    taken: tuple[Taken, ...]
    written: tuple[Window, ...]
    is_read: bool


class Sources(Protocol):
    """What is to be known of the stored leaves that a draft is made of."""

    def array_of(self, ref: LeafRef) -> tuple[ArrayStore, StoredArray] | None:
        """Its stored array, where it has one."""

    def has_digest(self, ref: LeafRef) -> bool:
        """True if a digest of its values is on record."""


def referred(
    recipe: Recipe, document: ArrayDocument, store: ArrayStore, known: Sources
) -> Referred | None:
    """Which chunks of an array, ``document`` in a store like ``store``, have the very bytes of a stored one.

    A chunk is taken if each of its elements is one of a single stored chunk, all of it, in the order in which they
    stand there, and both are encoded alike. None if there is no such chunk.
    """
    if not (isinstance(recipe, Made) and isinstance(recipe.kernel, Arrangement)):
        return None
    if any(isinstance(part, Made) and part.kernel.is_whole for part in parts(recipe)):
        return None  # it is made in one block
    sources: dict[LeafRef, _Source | None] = {}
    found: dict[LeafRef, tuple[_Source, list[tuple[str, str]]]] = {}
    written: list[Window] = []
    for index in itertools.product(*map(range, document.grid)):
        window = document.window(index)
        part, read = _origin(recipe, window)
        source = None
        if part is not None:
            if part.ref not in sources:
                sources[part.ref] = _Source.of(known.array_of(part.ref), document, store)
            source = sources[part.ref]
        key = None if source is None else source.key_of(read, document, window)
        if part is None or source is None or key is None:
            written.append(window)
        else:
            _, pairs = found.setdefault(part.ref, (source, []))
            pairs.append((key, document.key_of(index)))
    if not found:
        return None
    taken = [source.taken(pairs) for source, pairs in found.values()]
    is_read = any(known.has_digest(stored.ref) for stored in stored_in(recipe))
    return Referred(tuple(taken), tuple(written), is_read)


def _origin(recipe: Recipe, window: Window) -> tuple[Stored | None, Window]:
    """The window of a stored leaf that holds a block's elements alone, in the same order; None if there is none."""
    while isinstance(recipe, Made):
        kernel = recipe.kernel
        if not isinstance(kernel, Arrangement):
            return None, window
        specs = InputSpecs(recipe)
        pieces = list(itertools.islice(kernel.pieces(window, specs, recipe.spec), 2))
        if len(pieces) != 1 or pieces[0].write != window or not _keeps_order(kernel, pieces[0]):
            return None, window
        recipe, window = recipe.inputs[pieces[0].input], pieces[0].read
    return recipe, window


def _keeps_order(kernel: Arrangement, piece: Piece) -> bool:
    """True if the elements that are read follow each other in the output as they do there.

    Whoever arranges a block so gives back that memory, as it lies. It is never touched, so that none is in use.
    """
    import numpy as np

    block = np.empty([part.stop - part.start for part in piece.read], np.uint8)
    moved = kernel.arrange(block, piece)
    is_all = moved.size == block.size == math.prod(p.stop - p.start for p in piece.write)
    return bool(is_all and moved.flags.c_contiguous and _address(moved) == _address(block))


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class _Source(msgspec.Struct, frozen=True):
    """A stored array whose chunks are encoded like those of the array that is made."""

    store: ArrayStore
    array: StoredArray
    places: dict[str, int]
    """Where in the array's ``keys`` each of them stands."""

    @classmethod
    def of(
        cls,
        stored: tuple[ArrayStore, StoredArray] | None,
        document: ArrayDocument,
        store: ArrayStore,
    ) -> _Source | None:
        if stored is None or type(stored[0]) is not type(store):
            return None
        _, array = stored
        if array.document.encoding != document.encoding:
            return None
        return cls(*stored, {key: place for place, key in enumerate(array.keys)})

    def key_of(self, read: Window, document: ArrayDocument, window: Window) -> str | None:
        """The key of the chunk that is read and has the bytes of the one at ``window``; None if there is none."""
        own = self.array.document
        index = own.index_of(read)
        if index is None or not _lie_alike(own, read, document, window):
            return None
        key = own.key_of(index)
        return (
            key if key in self.places else None
        )  # one that is not stored is made of the fill value

    def taken(self, pairs: list[tuple[str, str]]) -> Taken:
        keys = tuple(key for key, _ in pairs)
        values = self.array.values
        if values:
            values = tuple(values[self.places[key]] for key in keys)
            count = sum(map(len, values))
        else:
            folder = self.store.directory
            files = dict.fromkeys(keys)
            count = sum(filesystem.size(folder / (below(self.array.name) + key)) for key in files)
        array = msgspec.structs.replace(self.array, keys=keys, values=values, stored_bytes=count)
        return Taken(self.store, array, tuple(to for _, to in pairs))


def _lie_alike(a: ArrayDocument, read: Window, b: ArrayDocument, window: Window) -> bool:
    """True if elements that follow each other alike in two chunks have the same places in what is encoded.

    A chunk at the end of an axis is stored as long as all others, with as much between its elements and behind them.
    """
    left, right = list(_axes(a, read)), list(_axes(b, window))
    if not (a.is_plain and b.is_plain):
        return left == right
    left, right = ([axis for axis in axes if axis.step != 1] for axes in (left, right))
    if left == right:
        return True
    are_dense = all(axis.inner == axis.step for axis in (*left, *right)) and all(
        axis.size == axis.step for axis in (*left[1:], *right[1:])
    )
    return are_dense and math.prod(a.write_shape) == math.prod(b.write_shape)


class _Axis(NamedTuple):
    """Of a chunk, along an axis: how many elements there are, how long it is, and what can be decoded alone in it."""

    size: int
    step: int
    inner: int


def _axes(document: ArrayDocument, window: Window) -> Iterator[_Axis]:
    for part, step, inner in zip(window, document.write_shape, document.chunk_shape, strict=True):
        yield _Axis(part.stop - part.start, step, inner)
