"""PyTorch checkpoints (``.pt``, ``.pth``, ``.bin``) in the zip format, read without running their pickles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.limits import LEAVES, NESTING
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray, Segment
from surgery_cli.store.files.numpy_records import NumpyArray, NumpyDtype
from surgery_cli.store.files.pickle_values import Name, NotPlain, NotRead, PickleValue, kind_of
from surgery_cli.store.files.shards import read_shards
from surgery_cli.store.files.strided import StridedArray
from surgery_cli.store.files.torch_archive import TorchArchive, damaged
from surgery_cli.store.files.torch_records import RECORDS, Tensor, storage
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.locate.file_formats import TORCH_SHARDS
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.lists import listed, quoted

_MOST_LEAVES_BY_OPCODE: Final = 4
"""Every leaf takes an opcode, but for those of containers that several others share: learning rates, not layers."""


class TorchFile:
    """The tree in an archive, or in a folder of them: see ``TorchArchiveFile``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def homes(self) -> dict[LeafPath, TorchArchiveFile]:
        """The archive in which each leaf stands."""
        if not filesystem.is_folder(self.path):
            return _held(self.path)
        return read_shards(self.path, TORCH_SHARDS, _held)

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: home.leaves[path].spec for path, home in self.homes.items()})

    def place_of(self, path: LeafPath) -> ContiguousArray | None:
        """Not told: of some tensors elements stand apart."""
        return None

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf's value; see ``TorchArchiveFile.read``."""
        return self.homes[path].read(path, window)


def _held(path: Path) -> dict[LeafPath, TorchArchiveFile]:
    archive = TorchArchiveFile(path)
    return dict.fromkeys(archive.leaves, archive)


class TorchLeaf(msgspec.Struct, frozen=True):
    """A leaf: what it is, and its value as the pickle has it; a tensor's stand in the archive."""

    spec: LeafSpec
    value: Any


class TorchArchiveFile:
    """The tree in one archive, as it was saved: dicts by their keys, lists and tuples by their places.

    A name with dots is one key. A tensor that was saved by itself is called like the file.

    Raises:
        CheckpointError: (on first use) the archive is damaged, or holds more than plain data and tensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = TorchArchive(path)

    @cached_property
    def leaves(self) -> dict[LeafPath, TorchLeaf]:
        """Every leaf with its value, or the place of it."""
        reader = PickleValue(self.archive.pickle, RECORDS, storage)
        try:
            root = reader.read()
            if not reader.strangers:
                if not isinstance(root, dict | list | tuple):
                    root = {self.path.stem: root}
                found = {
                    path: self._leaf(path, value)
                    for path, value in _walk(root, reader.opcodes * _MOST_LEAVES_BY_OPCODE)
                }
                LEAVES.check(len(found), f"'{self.path}'")
                if found:
                    return found
                raise NotPlain("nothing stands in it")
        except NotPlain as error:
            if not reader.strangers and isinstance(error, NotRead):
                raise CheckpointError(
                    f"'{self.path}' holds something that is no leaf",
                    why=str(error),
                    fix="load it with PyTorch where you trust it, and save plain tensors and numbers alone",
                ) from None
            if not reader.strangers:
                raise damaged(self.path, str(error)) from None
        raise self._strange(reader.strangers)

    def _strange(self, names: list[str]) -> CheckpointError:
        verb = "is not a tensor record" if len(names) == 1 else "are no tensor records"
        return CheckpointError(
            f"'{self.path}' holds more than tensors: {quoted(names, 8)}",
            why=f"{listed(names, 8, mark='`')} {verb}; what is no record would have to be run,"
            " and surgery never does that",
            fix="where you trust it, load it with PyTorch and save its tensors alone:"
            " `torch.save(torch.load(…, weights_only=False)['model'], 'x.pt')`",
        )

    def _leaf(self, path: LeafPath, value: Any) -> TorchLeaf:
        if isinstance(value, Tensor):
            return TorchLeaf(self._array_spec(value), value)
        if isinstance(value, dict | list | tuple):
            empty = type(value).__name__.capitalize()
            return TorchLeaf(LeafSpec(kind=LeafKind.EMPTY, empty=empty), None)
        if value is None:
            return TorchLeaf(LeafSpec(kind=LeafKind.EMPTY, empty="None"), None)
        if isinstance(value, str | Name | NumpyDtype):
            text = value.text if isinstance(value, Name) else str(value)
            return TorchLeaf(LeafSpec(kind=LeafKind.STRING, dtype="str"), text)
        if isinstance(value, bytes | NumpyArray):
            import numpy as np

            array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value.values
            spec = LeafSpec(kind=LeafKind.NUMPY, shape=array.shape, dtype=array.dtype.name)
            return TorchLeaf(spec, array)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise NotRead(f"the number at '{path}' does not fit into 64 bits")
        for kind, dtype in _NUMBERS.items():
            if isinstance(value, kind):
                return TorchLeaf(LeafSpec(kind=LeafKind.SCALAR, dtype=dtype), value)
        raise NotRead(
            f"at '{path}' stands something of the kind '{kind_of(value)}', which is no leaf"
        )

    def _array_spec(self, tensor: Tensor) -> LeafSpec:
        name = _entry(tensor)
        held = self.archive.size(name)
        if held != tensor.storage.bytes:
            raise NotPlain(f"'{name}' has {held} bytes, and its pickle says {tensor.storage.bytes}")
        spec = LeafSpec(kind=LeafKind.NUMPY, shape=tensor.shape, dtype=tensor.dtype)
        return msgspec.structs.replace(spec, stored_bytes=min(spec.bytes, held))

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf's value: an array, a Python number, text, or None for empties.

        Raises:
            KeyError: there is no such leaf.
            CheckpointError: its values do not read, or are not those that were saved.
        """
        leaf = self.leaves[path]
        value = leaf.value
        if isinstance(value, Tensor):
            try:
                return self._values(value, window)
            except OSError as error:
                raise unreadable(self.path, error) from None
        if leaf.spec.kind is LeafKind.NUMPY:
            import numpy as np

            # what `ascontiguousarray` does to an array without axes is to give it one
            return np.array(value if window is None else value[window], order="C")
        return value

    def _values(self, tensor: Tensor, window: Window | None) -> Any:
        """A block of a tensor, its entry held against the checksum: as it is read, where it is read whole."""
        import numpy as np

        entry, array = _entry(tensor), self._array(tensor)
        is_all = isinstance(array, ContiguousArray) and self.archive.size(entry) == sum(
            segment.length for segment in array.segments
        )
        if not is_all:
            self.archive.check(entry)
        block = array.read(window)
        if is_all and block.shape == tensor.shape:
            self.archive.check(entry, block.reshape(-1).view(np.uint8).data)
        elif is_all:
            self.archive.check(entry)
        return block

    def _array(self, tensor: Tensor) -> ContiguousArray | StridedArray:
        """Where the values of a tensor stand in the file."""
        size = item_bytes(tensor.dtype)
        start = self.archive.offset(_entry(tensor)) + tensor.offset * size
        is_swapped = self.archive.is_swapped and size > 1
        if tensor.is_contiguous and not is_swapped:
            spec = self._array_spec(tensor)
            segments = (Segment(start, spec.bytes),)
            return ContiguousArray(self.path, tensor.shape, tensor.dtype, segments=segments)
        return StridedArray(
            self.path,
            tensor.shape,
            tensor.dtype,
            offset=start,
            strides=tensor.strides,
            is_swapped=is_swapped,
        )


_NUMBERS: Final = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
"""Python's numbers, with the dtype that each is stored as; a bool is an int, too."""


def _entry(tensor: Tensor) -> str:
    return f"data/{tensor.storage.key}"


def _walk(root: Any, most: int) -> Iterator[tuple[LeafPath, Any]]:
    """Every leaf below ``root``, empty containers among them, in order.

    Raises:
        NotPlain: it is nested too deep or in itself, repeats itself to more than ``most`` leaves, or two keys of a
            dict print alike.
    """
    count = 0
    told_apart: set[int] = set()
    open_nodes = [(LeafPath(), _parts(root, LeafPath(), told_apart))]
    while open_nodes:
        node, parts = open_nodes[-1]
        for key, value in parts:
            path = LeafPath((*node, key))
            if isinstance(value, dict | list | tuple) and value:
                if len(path) >= NESTING.most:
                    raise NotPlain(
                        f"it is nested deeper than {NESTING.most} levels (`--limit nesting`), or in itself"
                    )
                open_nodes.append((path, _parts(value, path, told_apart)))
                break
            count += 1
            if count > most:
                raise NotPlain("its pickle repeats itself without end")
            yield path, value
        else:
            open_nodes.pop()


def _parts(
    value: dict[Any, Any] | list[Any] | tuple[Any, ...], path: LeafPath, told_apart: set[int]
) -> Iterator[tuple[Key, Any]]:
    """The parts of a container by their keys; ``told_apart``: the dicts whose keys were looked at."""
    if not isinstance(value, dict):
        return enumerate(value)
    if id(value) not in told_apart and len(set(map(str, value))) < len(value):
        raise NotRead(f"two keys of '{path}' print alike")
    told_apart.add(id(value))
    return ((str(key), inside) for key, inside in value.items())
