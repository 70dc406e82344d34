"""Stored arrays of an item, by stored name, whatever the layout: what metadata says, and how to read them."""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store.filesystem.boundary import linked
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.orbax.chunk_keeper import ChunkKeeper, bytes_kept, read_for
from surgery_cli.store.orbax.contexts import (
    POOLS,
    VALUES_POOL,
    failure_of_service,
    first_line,
    new_context,
)
from surgery_cli.store.orbax.declared_sizes import check_claim
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.stored_values import StoredValue
from surgery_cli.store.orbax.zarr import DRIVERS, ArrayDocument

if TYPE_CHECKING:
    import numpy as np
    import tensorstore as ts

Window = tuple[slice, ...]
"""A block of an array: one slice for each axis, steps of one."""

MEMORY: Final = {"driver": "memory"}
"""How TensorStore is told of what ``in_memory`` holds."""


class StoredArray(msgspec.Struct, frozen=True, gc=False):
    """An array as stored: its document, what is stored below its name by key, and how many bytes that is.

    ``values`` belong to the ``keys``, one for each: the bytes themselves, or where they lie in a database. They are
    empty where every key is a file.
    """

    name: str
    document: ArrayDocument
    keys: tuple[str, ...]
    stored_bytes: int
    values: tuple[bytes | Extent, ...] = ()
    empty_keys: tuple[str, ...] = ()
    """Of the keys that are files, those without a byte."""

    @property
    def extents(self) -> list[Extent]:
        """Where the values lie, those left out that the database's tree holds itself."""
        return [value for value in self.values if isinstance(value, Extent)]


def below(name: str) -> str:
    """What stands before the keys of an array in its store; nothing where a bare array is the whole tree."""
    return f"{name}/" if name else ""


class ArrayStore(ABC):
    """The arrays of one item directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def context(self) -> ts.Context:
        return new_context()

    @cached_property
    def chunk_keeper(self) -> ChunkKeeper:
        return ChunkKeeper()

    @cached_property
    def _begun(self) -> dict[str, Any]:
        """Arrays that are being read whole."""
        return {}

    def begin_reading(self, name: str) -> None:
        """Begin to read an array whole that is read whole next, once; what goes wrong is said by who does."""
        document = self.arrays[name].document
        with suppress(CheckpointError):
            check_claim(document, name, self.directory, document.shape)
            self._begun[name] = open_array(self, name).read(order="C")

    def begun(self, name: str) -> Any:
        """The future of an array that was begun, for whoever is the first to read it whole; else None."""
        return self._begun.pop(name, None)

    def may_fill(self, name: str) -> bool:
        """False if every chunk of an array is stored: one that is not found when it is read was removed since."""
        if name not in self._may_fill:
            array = self.arrays[name]
            document, stored = array.document, sum(map(array.document.is_chunk, array.keys))
            in_shards = document.chunk_shape != document.write_shape  # which may leave chunks out
            self._may_fill[name] = in_shards or stored < document.chunk_count
        return self._may_fill[name]

    @cached_property
    def _may_fill(self) -> dict[str, bool]:
        return {}

    @cached_property
    def symbolic_links(self) -> list[str]:
        """Data files that symbolic links lead to; they are read as what they lead to."""
        return linked(self.directory, self.data_files)

    @property
    @abstractmethod
    def zarr(self) -> int:
        """The zarr version of all arrays."""

    @property
    @abstractmethod
    def arrays(self) -> dict[str, StoredArray]: ...
    @property
    @abstractmethod
    def layout(self) -> str: ...
    @property
    @abstractmethod
    def dead_bytes(self) -> int: ...
    @property
    @abstractmethod
    def data_files(self) -> list[str]:
        """The files of all arrays, relative to the directory."""

    @abstractmethod
    def kvstore(self, name: str) -> dict[str, Any]:
        """TensorStore's JSON for the key-value store that holds the array's chunks."""

    @abstractmethod
    def encoded(self, name: str) -> dict[str, bytes] | None:
        """What is stored below the array's name, by key, if it is little and known where it lies; else None.

        Raises:
            OSError: it is not there.
        """

    @abstractmethod
    def expect(self, names: Iterable[str], encoded: Iterable[str] = ()) -> None:
        """These arrays will be read, in any order, and the stored values of those: where reads are requests,
        neighbours come in one.
        """

    @abstractmethod
    def stored_values(self, name: str) -> dict[str, StoredValue]:
        """What is stored below the array's name, by key in order, its document among them.

        Raises:
            CheckpointError: it is not there.
        """

    @abstractmethod
    def identity(self, name: str) -> Hashable:
        """Equal for two arrays, of any two stores, if and only if they refer to the same stored bytes."""


def in_memory(encoded: Mapping[str, bytes]) -> ts.Context:
    """A context of its own, in which these values are all that the memory holds."""
    import tensorstore as ts

    context = ts.Context(POOLS)
    memory = ts.KvStore.open(MEMORY, context=context).result()
    for key, value in encoded.items():
        memory.write(key, value).result()
    return context


def open_array(store: ArrayStore, name: str, bytes_kept: int = 0) -> ts.TensorStore:
    """The stored array, opened for reading; its document is not read again.

    So many bytes of its chunks are kept for those who read of it next.

    Raises:
        CheckpointError: the array cannot be opened.
    """
    import tensorstore as ts

    # A missing chunk reads as the fill value, or as zeros where none is recorded. Items refuse arrays whose chunks may
    # not be missing when they are opened (`PytreeItem.leaves`), so that nothing is made up here.
    spec: dict[str, Any] = {
        "driver": DRIVERS[store.zarr],
        "cache_pool": VALUES_POOL,
        "recheck_cached_metadata": False,
        "recheck_cached_data": False,
        "fill_missing_data_reads": store.may_fill(name),
    }
    try:
        encoded = store.encoded(name)

        def plain() -> ts.Context:
            return store.context if encoded is None else in_memory(encoded)

        context = store.chunk_keeper.context(name, bytes_kept, plain) if bytes_kept else plain()
        spec["kvstore"] = store.kvstore(name) if encoded is None else MEMORY
        with suppress(
            ValueError
        ):  # what TensorStore does not take from us, it may take as it is stored
            known = {**spec, "metadata": store.arrays[name].document.fields}
            return ts.open(
                known, open=True, read=True, assume_metadata=True, context=context
            ).result()
        return ts.open(spec, open=True, read=True, context=context).result()
    except (ValueError, OSError) as error:
        raise damaged(store, name, error) from error


def read_array(
    store: ArrayStore, name: str, window: Window | None = None, dtype: str = ""
) -> np.ndarray[Any, Any]:
    """The values of a stored array, or of a block of it, C-contiguous; in another ``dtype``, rounded by TensorStore.

    Raises:
        CheckpointError: bytes are missing or do not decode, or are more than there is memory for.
    """
    import numpy as np
    import tensorstore as ts

    document = store.arrays[name].document
    block = document.shape if window is None else tuple(s.stop - s.start for s in window)
    if not store.chunk_keeper.holds(name):  # else its chunks have their memory
        check_claim(document, name, store.directory, block)
    part = read_for(window)
    kept = bytes_kept(document, part)
    try:
        coming = store.begun(name) if not dtype and block == document.shape else None
        if coming is None:
            array = open_array(store, name, kept)
            if dtype:
                array = ts.cast(array, dtype)
            coming = (array if window is None else array[window]).read(order="C")
        values = coming.result()
    except (ValueError, OSError) as error:
        raise damaged(store, name, error) from error
    finally:
        if part is not None:
            count = math.prod(one.stop - one.start for one in part)
            store.chunk_keeper.count_read(name, count, math.prod(document.shape))
    return np.asarray(values)


def damaged(store: ArrayStore, name: str, error: Exception) -> CheckpointError:
    """The error for an array that does not read."""
    refused = _refusal_of_system(error)
    if refused is not None:
        return unreadable(path_at(os.fsdecode(refused.filename)), refused)
    if failed := failure_of_service(store.directory, error):
        return failed
    return CheckpointError(
        f"the stored array '{name}' in '{store.directory}' cannot be read",
        why=first_line(error),
        fix="its data is missing or damaged; copy the checkpoint again from where it was whole",
    )


_OF_SYSTEM: Final = re.compile(r"""Failed to open: "(.*?)": ([^[]*?) \[.*?os_error_code='(\d+)'""")
"""How TensorStore says that the system does not give a file; 0.1.85 names lines of its own source before the code."""


def _refusal_of_system(error: Exception) -> OSError | None:
    """What the system said of a file, where an array does not read for that."""
    if isinstance(error, OSError):
        return error if error.filename else None
    found = _OF_SYSTEM.search(str(error))
    return OSError(int(found[3]), found[2], found[1]) if found else None
