"""What is left of each leaf: all of its chunks, some of them, or none; and what proves them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from surgery_cli.engine.digests import LeafDigest
from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.inputs.limits import CHUNKS
from surgery_cli.proof.tree_files import document_fault
from surgery_cli.salvage.states import Assumption, Proof, Route, State
from surgery_cli.salvage.values import Held, Values
from surgery_cli.store.orbax.arrays import MEMORY, in_memory
from surgery_cli.store.orbax.declared_sizes import check_claim
from surgery_cli.store.orbax.shard_index import index_bytes, shard_fault
from surgery_cli.store.orbax.stored_values import whole
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, DRIVERS, ArrayDocument, parse
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

Window: TypeAlias = tuple[slice, ...]


class FoundArray(msgspec.Struct, frozen=True):
    """An array of which something was found: what describes it, and its chunks by place in the grid."""

    name: str
    document: ArrayDocument
    described: Held
    chunks: dict[tuple[int, ...], Held]
    is_disputed: bool = False
    beyond: tuple[str, ...] = ()
    """Keys like those of chunks that lie outside of its shape."""
    described_by: str = ""
    """Whose description stands for its own, which is lost: a leaf's, or that in another checkpoint."""
    assumes: Assumption | None = None
    """What must be so for that to be its own."""
    has_unstored: bool = False
    """True if what is not stored of it is the fill value, by all that stands there: older releases left zeros out."""

    @property
    def routes(self) -> list[Route]:
        """On which ways its values were found, each once."""
        return list(dict.fromkeys([self.described.route, *(c.route for c in self.chunks.values())]))

    @property
    def is_proven(self) -> bool:
        """True if a checksum covers every byte of it."""
        return self.is_description_proven and all(c.is_proven for c in self.chunks.values())

    @property
    def is_description_proven(self) -> bool:
        """True if a checksum covers what describes it."""
        return self.described.is_proven and not self.described_by

    def places(self) -> Iterator[tuple[int, ...]]:
        """The places of all chunks that it should have."""
        return itertools.product(*map(range, self.document.grid))

    @property
    def stored_bytes(self) -> int:
        """Bytes of its chunks that were found."""
        return sum(len(held.value) for held in self.chunks.values())

    @property
    def is_complete(self) -> bool:
        """True if every chunk was found; whether they decode is another question."""
        return self.has_unstored or len(self.chunks) == self.document.chunk_count

    def read(self, window: Window | None = None) -> Any:
        """Its values, or a block of them: [the block's shape], C-contiguous.

        Raises:
            CheckpointError: a chunk of it is missing or does not decode, or is more than there is memory for.
        """
        import numpy as np
        import tensorstore as ts

        document = self.document
        window = tuple(slice(0, n) for n in document.shape) if window is None else window
        check_claim(document, self.name, Path(), tuple(s.stop - s.start for s in window))
        encoded = {DOCUMENT_NAMES[document.zarr]: document.raw}
        for place in _met_by(window, document):
            if (held := self.chunks.get(place)) is not None:
                encoded[document.key_of(place)] = whole(held.value)
        spec = {
            "driver": DRIVERS[document.zarr],
            "kvstore": MEMORY,
            # a chunk that is missing is damage, and no zeros
            "fill_missing_data_reads": self.has_unstored,
        }
        try:
            array = ts.open(spec, open=True, read=True, context=in_memory(encoded)).result()
            return np.asarray(array[window].read(order="C").result())
        except (ValueError, OSError) as error:
            raise CheckpointError(
                f"'{self.name}' does not decode",
                why=str(error).split("\n", 1)[0][:200],
                fix="rescue what is left of it",
            ) from None

    def contradictory(self) -> dict[tuple[int, ...], str]:
        """Those of its chunks that contradict themselves, and how: they decode to values of other places.

        What a checksum covers is as it was written.
        """
        length, found = index_bytes(self.document), {}
        for place, held in self.chunks.items() if length else ():
            if not held.is_proven and (why := shard_fault(held.value, length)):
                found[place] = f"chunk '{self.document.key_of(place)}' is damaged: {why}"
        return found

    def decoding(self) -> dict[tuple[int, ...], Held]:
        """Those of its chunks that decode, each tried alone."""
        found = {}
        for place, held in self.chunks.items():
            try:
                self.read(self.document.window(place))
            except UnseenError:
                raise
            except CheckpointError:
                continue
            found[place] = held
        return found


class SavedLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """A leaf that the broken checkpoint had, and what is left of it.

    ``missing`` are the elements that are not there, as blocks (starts and stops of each axis). ``why`` of what is not
    whole. ``value`` is what stands for leaves without an array: text, or what an empty node was. ``digest`` and
    ``proof`` are those of a whole one.
    """

    path: LeafPath
    entry: dict[str, Any]
    state: State
    array: FoundArray | None = None
    missing: tuple[tuple[tuple[int, int], ...], ...] = ()
    share: float = 1.0
    why: str = ""
    value: str | None = None
    spec: LeafSpec | None = None
    """What it is, where no document of an array says so."""
    digest: LeafDigest | None = None
    proof: Proof | None = None
    assumes: Assumption | None = None
    """What must be so for a whole one to be what was saved."""


def found_arrays(
    values: Values, expected: set[str]
) -> tuple[dict[str, FoundArray], dict[str, str]]:
    """The arrays among stored values, by name; and of those without a description that can be read, why.

    ``expected``: names that are known to be arrays', whatever else the keys say.
    """
    documents: dict[str, tuple[ArrayDocument, Held]] = {}
    faults: dict[str, str] = {}
    for key, held in values.held.items():
        name, _, last = key.rpartition("/")
        if last not in DOCUMENT_NAMES.values():
            continue
        try:
            documents[name] = parse(whole(held.value)), held
        except UnseenError:
            raise
        except CheckpointError as error:
            faults[name] = f"what describes it cannot be read: {error.problems[0].why}"
    arrays = {
        name: FoundArray(name, document, held, {}) for name, (document, held) in documents.items()
    }
    disputed = set()
    beyond: dict[str, list[str]] = {}
    for key, held in values.held.items():
        owner = owner_of(key, arrays.keys() | expected)
        if owner not in arrays:
            if owner is not None:
                faults.setdefault(owner, "nothing that describes it was found")
            continue
        array, rest = arrays[owner], key[len(owner) + 1 :]
        if array.document.is_chunk(rest):
            array.chunks[array.document.index_of_key(rest)] = held
        elif array.document.is_like_chunk(rest):
            beyond.setdefault(owner, []).append(rest)
        if values.is_disputed(key):
            disputed.add(owner)
    return {
        name: msgspec.structs.replace(
            array, is_disputed=name in disputed, beyond=tuple(beyond.get(name, ()))
        )
        for name, array in arrays.items()
    }, faults


def lacks_stored(array: FoundArray, values: Values) -> bool:
    """True if a chunk of an array was stored, and is lost: its key leads to no bytes."""
    start = f"{array.name}/"
    rests = (key.removeprefix(start) for key in values.gone if key.startswith(start))
    return any(map(array.document.is_chunk, rests))


def owner_of(key: str, names: Container[str]) -> str | None:
    """The array that a key belongs to: the longest name that it lies below."""
    name = key
    while name:
        name = name.rpartition("/")[0]
        if name in names:
            return name
    return None


def _met_by(window: Window, document: ArrayDocument) -> Iterator[tuple[int, ...]]:
    """The places of the chunks that a block lies in."""
    ranges = [
        range(part.start // max(step, 1), -(-part.stop // max(step, 1)))
        for part, step in zip(window, document.write_shape, strict=True)
    ]
    return itertools.product(*ranges)


def contradiction(array: FoundArray, entry: Mapping[str, Any], recorded: Sequence[Any]) -> str:
    """What speaks against the description of an array, in words; '' if nothing does, or a checksum covers it.

    ``entry`` is what ``_METADATA`` says of the leaf, ``recorded`` what each file in ``array_metadatas`` does. Orbax
    restores by the description alone: where any of them agrees with it, the others are what is damaged.
    """
    document = array.document
    if array.is_description_proven:
        return ""
    if array.beyond:
        return f"chunks lie beyond its shape {list(document.shape)} (first: '{min(array.beyond)}')"
    if why := document_fault(document, is_key=any(map(_is_of_key, recorded))):
        return why
    said: list[tuple[str, Any, Any]] = [("`_METADATA`", entry.get("write_shape"), None)]
    said += [
        ("`array_metadatas`", one.get("write_shape"), one.get("chunk_shape")) for one in recorded
    ]
    said = [one for one in said if isinstance(one[1], list)]
    if not said or any(_agrees(document, shape, chunks) for _, shape, chunks in said):
        return ""
    where, shape, chunks = said[0]
    cut = f", in chunks of {chunks}" if chunks is not None else ""
    return (
        f"its shape is {list(document.shape)}, in chunks of {list(document.chunk_shape)},"
        f" and by {where} it was written in blocks of {shape}{cut}"
    )


def _is_of_key(recorded: Mapping[str, Any]) -> bool:
    extra = recorded.get("ext_metadata")
    return isinstance(extra, dict) and "random_key_impl" in extra


def _agrees(document: ArrayDocument, shape: list[Any], chunks: Any) -> bool:
    return chunks in (None, list(document.chunk_shape)) and document.can_be_of(shape)


def missing_blocks(
    array: FoundArray, present: Mapping[tuple[int, ...], Held]
) -> tuple[tuple[tuple[tuple[int, int], ...], ...], float]:
    """The elements that are not there, chunk by chunk; and the share of the elements that are."""
    document = array.document
    if (
        document.chunk_count - len(present) > CHUNKS.most
    ):  # a claim: they are not counted one by one
        return (), len(present) / document.chunk_count
    blocks = []
    lost = 0
    for place in array.places():
        if place not in present:
            window = document.window(place)
            blocks.append(tuple((part.start, part.stop) for part in window))
            lost += math.prod(part.stop - part.start for part in window)
    size = math.prod(document.shape)
    return tuple(blocks), (1 - lost / size) if size else 1.0
