"""Digests of leaves: SHA-256 over dtype, shape, block grid and each block's own SHA-256."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from surgery_cli.draft.kernel import Window
from surgery_cli.draft.leaf_digest import sha256_of_blocks, sha256_of_text
from surgery_cli.engine.bounded_reads import Reading, block_reading, met_by
from surgery_cli.engine.grid import block_shape, relative
from surgery_cli.engine.reading import Readable
from surgery_cli.inputs.limits import BLOCKS
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

if TYPE_CHECKING:
    import numpy as np

_BESIDE_BYTES: Final = 1 << 20
"""From so many on, a digest takes longer than a thread to begin: 0.6 ms, and about 0.3."""


class LeafDigest(msgspec.Struct, frozen=True):
    """A digest with the block shape that it was taken over; the leaf's path is not in it."""

    digest: str
    grid: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()


def refuse_many_blocks(spec: LeafSpec, grid: tuple[int, ...]) -> None:
    """Raise CheckpointError if a leaf has more blocks than the limit `blocks` allows, as no record has."""
    count = math.prod(-(-n // max(part, 1)) for n, part in zip(spec.shape, grid, strict=False))
    BLOCKS.check(count, f"the digest on record of a leaf {spec.type_text}")


class Digester:
    """Takes blocks in any order and gives the leaf's digest once all have come."""

    def __init__(self, spec: LeafSpec, grid: tuple[int, ...]) -> None:
        """``grid``: the shape of the blocks.

        Raises:
            CheckpointError: there would be more blocks than the limit `blocks` allows, as no record has.
        """
        refuse_many_blocks(spec, grid)
        self._spec = spec
        self.grid = grid
        self._blocks: dict[tuple[int, ...], bytes] = {}
        self._begun: dict[tuple[int, ...], hashlib._Hash] = {}

    def add(self, window: Window, values: np.ndarray[Any, Any]) -> bytes:
        """A block of the grid, C-contiguous; its own digest."""
        found = block_digest(values)
        self.put(window, found)
        return found

    def put(self, window: Window, digest: bytes) -> None:
        """As ``add``, of a block of which the digest is known."""
        self._blocks[tuple(s.start for s in window)] = digest

    def add_part(self, window: Window, values: np.ndarray[Any, Any]) -> None:
        """Of any blocks of the grid what comes next in each of them, in C order."""
        for part in met_by(window, self.grid):
            start = tuple(s.start // max(n, 1) * n for s, n in zip(part, self.grid, strict=True))
            hashed = self._begun.setdefault(start, hashlib.sha256())
            hashed.update(c_order_bytes(values[relative(part, window)]))

    @property
    def blocks(self) -> dict[tuple[int, ...], bytes]:
        """The digests of the blocks that have come, by where they begin."""
        return self._blocks

    @property
    def known(self) -> list[tuple[Window, bytes]]:
        """The blocks that have come, with the digest of each."""
        shape = self._spec.shape
        return [
            (
                tuple(
                    slice(at, min(at + n, end))
                    for at, n, end in zip(start, self.grid, shape, strict=True)
                ),
                found,
            )
            for start, found in self._blocks.items()
        ]

    def is_complete(self, count: int) -> bool:
        """True once ``count`` blocks have come."""
        return len(self._blocks) == count

    def result(self) -> LeafDigest:
        """``sha256:…`` over dtype, shape and grid as JSON, then the blocks' digests in C order."""
        return digest_of_blocks(self._spec, self.grid, self.in_c_order())

    def in_c_order(self) -> tuple[bytes, ...]:
        """The digests of the blocks, one after the other."""
        self._blocks |= {start: hashed.digest() for start, hashed in self._begun.items()}
        return tuple([self._blocks[start] for start in sorted(self._blocks)])


def digest_of_blocks(spec: LeafSpec, grid: tuple[int, ...], blocks: Iterable[bytes]) -> LeafDigest:
    """The digest of a leaf by those of its blocks, in C order."""
    return LeafDigest(sha256_of_blocks(spec.dtype, spec.shape, grid, blocks), grid)


def block_digest(values: np.ndarray[Any, Any]) -> bytes:
    """SHA-256 of the C-order bytes of a block."""
    return hashlib.sha256(c_order_bytes(values)).digest()


def checksum(values: np.ndarray[Any, Any]) -> bytes:
    """XXH3, 128 bits, of the C-order bytes of a block: for what is compared within one run, where nobody forges.

    A tenth of the time that a digest takes.
    """
    import xxhash

    return xxhash.xxh3_128_digest(c_order_bytes(values))


def digest_beside(values: np.ndarray[Any, Any]) -> Future[bytes]:
    """SHA-256 of a block, made while something else is done; at once where a thread takes longer to begin."""
    if values.nbytes >= _BESIDE_BYTES:
        return in_background(block_digest, values)
    made: Future[bytes] = Future()
    made.set_result(block_digest(values))
    return made


def c_order_bytes(values: np.ndarray[Any, Any]) -> Any:
    """The C-order bytes of a block; types that NumPy does not export (bfloat16) are viewed as bytes."""
    import numpy as np

    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def digest_of_text(text: str | None) -> LeafDigest:
    """The digest of a string leaf or of an empty one."""
    return LeafDigest(sha256_of_text(text))


def digest_reading(
    spec: LeafSpec, limit_bytes: int, grid: tuple[int, ...] | None = None
) -> Reading:
    """How a stored leaf is read to be digested over a recorded ``grid``, else over its own."""
    return block_reading(spec, limit_bytes, grid, is_joint=grid is not None)


def leaf_digest(
    source: Readable,
    path: LeafPath,
    spec: LeafSpec,
    reading: Reading,
    grid: tuple[int, ...] | None = None,
    look: Callable[[np.ndarray[Any, Any]], None] = lambda _: None,
) -> LeafDigest:
    """Read a stored leaf as ``reading`` says, which is of the same ``grid``, and digest it.

    ``look`` is given every part, for what else is to be known of the values.

    Raises:
        CheckpointError: the leaf cannot be read.
    """
    return digest_and_blocks(source, path, spec, reading, grid, look)[0]


def digest_and_blocks(
    source: Readable,
    path: LeafPath,
    spec: LeafSpec,
    reading: Reading,
    grid: tuple[int, ...] | None = None,
    look: Callable[[np.ndarray[Any, Any]], None] = lambda _: None,
) -> tuple[LeafDigest, tuple[bytes, ...]]:
    """As ``leaf_digest``, with the digests of the blocks; of what is no array none."""
    if not spec.has_array:
        text = source.read(path) if spec.kind is LeafKind.STRING else spec.empty
        return digest_of_text(text), ()
    digester = Digester(spec, block_shape(spec, spec.write_shape) if grid is None else grid)
    for _, parts in reading.windows(spec.shape):
        for window in parts:
            values = reading.read(source, path, spec, window)
            look(values)
            digester.add_part(window, values)
            del values  # or it would stay while the next is read
    return digester.result(), digester.in_c_order()
