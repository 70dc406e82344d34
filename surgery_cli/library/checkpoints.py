"""A checkpoint as a mapping from paths to arrays that are read when they are asked for."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.errors import MissingError, PlanError
from surgery_cli.library.arguments import Place, with_checked_arguments
from surgery_cli.store.open.as_opened import LastingReads
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.leaf_names import document_names, named_leaves
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.quantities import byte_text, leaves_text


class Leaf:
    """A stored leaf: shape and dtype are known, values are read by `leaf[...]` or `numpy.asarray(leaf)`."""

    def __init__(self, checkpoint: Checkpoint, path: LeafPath, reads: LastingReads) -> None:
        self._reads = reads
        self._path = path
        self._spec: LeafSpec = checkpoint.tree[path]

    @property
    def path(self) -> str:
        """The path as it prints."""
        return str(self._path)

    @property
    def kind(self) -> str:
        """`array`, `numpy`, `scalar`, `string`, `key` or `empty`."""
        return str(self._spec.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, as NumPy and `ml_dtypes` know it."""
        self._refuse_empty()
        return numpy_dtype(self._spec.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._spec.size

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._spec.bytes

    def read(self) -> Any:
        """The whole value: an array, or what a scalar, a string or an empty leaf holds."""
        return self._reads.read(self._path)

    def __getitem__(self, index: Any) -> Any:
        """The values at ``index``, of which only what it spans is read: integers, slices and `...`.

        Raises:
            IndexError: it is out of bounds, or for more axes than there are.
            TypeError: it is an array or a mask; index what was read (`leaf[...][mask]`).
        """
        self._refuse_empty()
        window, inner = _window(index, self.shape)
        if not self._spec.has_array:
            return np.asarray(self.read())[inner]
        return np.asarray(self._reads.read(self._path, window))[inner]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._refuse_empty()
        if copy is False:
            raise ValueError(f"'{self.path}' is stored: its values cannot be had without a copy")
        found = np.asarray(self.read())
        return found if dtype is None else found.astype(dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a leaf without axes has no length")
        return self.shape[0]

    def __float__(self) -> float:
        return float(self._single())

    def __int__(self) -> int:
        return int(self._single())

    def __complex__(self) -> complex:
        return complex(self._single())

    def __index__(self) -> int:
        return operator.index(self._single())

    def __bool__(self) -> bool:
        return bool(self._single())

    def _single(self) -> np.ndarray[Any, Any]:
        """An array of which NumPy makes a number if the leaf is one; else it refuses it, and nothing is read."""
        self._refuse_empty()
        if math.prod(self.shape) == 1:
            return np.asarray(self)
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def _refuse_empty(self) -> None:
        if self._spec.empty:
            raise TypeError(
                f"'{self.path}' is empty and holds no array: `.read()` gives what stands there"
            )

    def __repr__(self) -> str:
        return f"<{self.path}: {self._spec.type_text}, {byte_text(self.nbytes)}>"


class NoLeafError(MissingError, KeyError):
    """No leaf is named like that, or several are; what a mapping says of a key that it has not."""


class OpenCheckpoint(Mapping[str, Leaf]):
    """A checkpoint, opened: its leaves by path, in stored order. Nothing but metadata is read until a leaf is."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._reads = LastingReads(checkpoint)

    @cached_property
    def _paths(self) -> dict[str, LeafPath]:
        """Leaves by how documents name them."""
        names = document_names(self._checkpoint.tree.texts)
        return {name: path for path, name in names.items()}

    @cached_property
    def _known(self) -> dict[str, LeafPath]:
        """The same, and leaves by their keys joined by slashes, where only one has these."""
        texts = self._checkpoint.tree.texts
        counts = Counter(texts.values())
        return {text: path for path, text in texts.items() if counts[text] == 1} | self._paths

    @property
    def path(self) -> str:
        """Where it stands."""
        return str(self._checkpoint.location.root)

    @property
    def step(self) -> int | None:
        """The step that was opened, of a run."""
        return self._checkpoint.step

    @property
    def fingerprint(self) -> str:
        """Digest of its metadata and of names and sizes of its data files; no value is read."""
        return self._checkpoint.fingerprint

    def select(self, *patterns: str) -> dict[str, Leaf]:
        """The leaves that any of the patterns names.

        Raises:
            PlanError: one names nothing; the nearest paths are in it.
        """
        named = named_leaves(patterns, self._checkpoint.tree)
        return {text: self._leaf(path) for text, path in self._paths.items() if path in named}

    def __getitem__(self, path: str) -> Leaf:
        if path in self._known:
            return self._leaf(self._known[path])
        if not isinstance(path, str):
            raise NoLeafError(
                f"{path!r} is no path", fix='paths are text: `["params/Dense_0/kernel"]`'
            )
        try:
            named = named_leaves((path,), self._checkpoint.tree)
        except PlanError as error:
            raise NoLeafError.of(error.problems) from None
        if len(named) == 1:
            return self._leaf(next(iter(named)))
        raise NoLeafError(
            f"'{path}' names {leaves_text(len(named))}",
            fix=f'name one of them, or take all of them: `.select("{path}")`',
            path=path,
        )

    def __contains__(self, path: object) -> bool:
        return path in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        size = byte_text(self._checkpoint.tree.bytes)
        return f"<checkpoint {self.path}: {leaves_text(len(self))}, {size}>"

    def _leaf(self, path: LeafPath) -> Leaf:
        return Leaf(self._checkpoint, path, self._reads)


@with_checked_arguments
def open(checkpoint: Place, *, step: int | None = None, item: str | None = None) -> OpenCheckpoint:
    """Open a checkpoint, named as on the command line: a path, `ROOT@N`, an address of a bucket.

    Raises:
        PlanError: nothing stands there, or there is no such step or item.
        CheckpointError: what stands there cannot be read.
    """
    return OpenCheckpoint(open_checkpoint(str(checkpoint), step=step, item=item))


def _is_basic(one: Any) -> bool:
    """True for an integer, a slice or `...`; a truth value is a mask without axes."""
    is_number = isinstance(one, int | np.integer) and not isinstance(one, bool)
    return is_number or isinstance(one, slice) or one is Ellipsis


def _window(index: Any, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[Any, ...]]:
    """What must be read for ``index``, and where in that it is."""
    given = list(index) if isinstance(index, tuple) else [index]
    if not all(_is_basic(one) for one in given):
        raise TypeError(
            "a stored leaf takes integers, slices and `...`; index what was read: `leaf[...][mask]`"
        )
    at = next((n for n, one in enumerate(given) if one is Ellipsis), len(given))
    named = [one for one in given if one is not Ellipsis]
    if len(named) > len(shape) or len(named) < len(given) - 1:
        raise IndexError(f"an index for {len(named)} axes, of {len(shape)}")
    given[at : at + 1] = [slice(None)] * (len(shape) - len(named))
    outer: list[slice] = []
    inner: list[Any] = []
    for axis, (one, size) in enumerate(zip(given, shape, strict=True)):
        if not isinstance(one, slice) and not -size <= one < size:
            raise IndexError(f"index {one} is out of bounds for axis {axis} with size {size}")
        chosen = range(size)[one]
        if isinstance(chosen, int):
            outer.append(slice(chosen, chosen + 1))
            inner.append(0)
            continue
        first, last = (min(chosen), max(chosen) + 1) if chosen else (0, 0)
        outer.append(slice(first, last))
        start = chosen.start - first if chosen else 0
        stop = start + len(chosen) * chosen.step
        inner.append(slice(start, stop if stop >= 0 else None, chosen.step))
    return tuple(outer), tuple(inner)
