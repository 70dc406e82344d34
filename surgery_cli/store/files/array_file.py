"""Files of arrays that an edit takes values from: ``.npy``, ``.npz`` and ``.safetensors``. Never unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.inputs.suffixes import ARRAY_SUFFIXES
from surgery_cli.store import filesystem
from surgery_cli.store.files import fingerprints
from surgery_cli.store.files.contiguous import ContiguousArray
from surgery_cli.store.files.npy_arrays import (
    ArrayEntry,
    array_spec,
    check_bytes,
    damaged,
    npy_entry,
    npz_entries,
    unpacked,
)
from surgery_cli.store.files.safetensors import read_header
from surgery_cli.store.locate import lfs_pointers, refusals
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

if TYPE_CHECKING:
    import numpy as np


class ArrayFile:
    """Arrays in one file, by name; only headers are read to open it.

    The array of a ``.npy`` file is called like the file, those of the others like their entries; a name is one key.
    ``text`` may name one entry, as ``x.npz:ENTRY``: then that is all there is.

    Raises:
        PlanError: the file or the entry does not exist, or its suffix is another.
        CheckpointError: the file is damaged, or holds pickled objects.
    """

    tells_kinds: Final = False
    step: Final = None
    steps: Final[Mapping[int, str]] = MappingProxyType({})
    step_formats: Final = ()

    def __init__(self, text: str) -> None:
        self.text = address(text, refusal=CheckpointError)
        filesystem.forget(path_at(self.text))
        self.path, entry = _split(self.text)
        self._entry_name = entry
        refuse_special(self.path)
        if not filesystem.is_file(self.path):
            raise refusals.missing(filesystem.absolute(self.path))
        if lfs_pointers.is_pointer(self.path):
            raise lfs_pointers.pointer(self.path, filesystem.absolute(self.path).parent)
        self._checked: set[LeafPath] = set()
        self.read_beside: dict[Path, bytes | None] = {}  # what `beside` was asked for
        self._entries = self._opened()
        if entry is not None:
            self._entries = {LeafPath((entry,)): self._entry(entry)}

    @property
    def address(self) -> str:
        return str(filesystem.absolute(path_at(self.text)))

    @property
    def places(self) -> frozenset[str]:
        return frozenset({str(filesystem.real(self.path))})

    def _opened(self) -> dict[LeafPath, ArrayEntry]:
        match self.path.suffix:
            case ".npy":
                return {LeafPath((self.path.stem,)): npy_entry(self.path)}
            case ".npz":
                return npz_entries(self.path)
            case ".safetensors":
                arrays = read_header(self.path)
                return {
                    path: ArrayEntry(array_spec(a.shape, a.dtype), a) for path, a in arrays.items()
                }
        raise PlanError(
            f"'{self.path}' is no file of arrays that surgery reads",
            why=f"its name ends in '{self.path.suffix}'",
            fix=f"use one of {', '.join(ARRAY_SUFFIXES)}",
        )

    def _entry(self, name: str) -> ArrayEntry:
        """The entry of that name.

        Raises:
            PlanError: there is none; the nearest are shown.
        """
        found = self._entries.get(LeafPath((name,)))
        if found is None:
            names = [path.text for path in self._entries]
            near = nearest(name, names) or names[:3]
            raise PlanError(
                f"'{self.path}' has no entry '{name}'",
                why=f"it has {len(names)}: {', '.join(map(repr, near))}{', …' * (len(names) > len(near))}",
                fix=f"`{self.path}:{near[0]}`" if near else "",
            )
        return found

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: entry.spec for path, entry in self._entries.items()})

    @property
    def place_on_disk(self) -> Path:
        """The file."""
        return self.path

    def beside(self, name: str) -> bytes | None:
        """What is in a small file of this name in the same folder; None if there is none."""
        place = self.path.parent / name
        return self.read_beside.setdefault(place, filesystem.read_if_any(place))

    def is_unchanged(self, *, as_seen: bool = False) -> bool:
        """True if the file still is what it was when the fingerprint was taken; ``as_seen``: see ``Checkpoint``."""
        if not as_seen:
            filesystem.forget(self.path)
        return filesystem.is_file(self.path) and self._fingerprint_now() == self.fingerprint

    @cached_property
    def fingerprint(self) -> str:
        """That of the file as a checkpoint, of which it may be the source elsewhere; or of one entry in it."""
        return self._fingerprint_now()

    def _fingerprint_now(self) -> str:
        return fingerprints.of_items([(self._entry_name or "", fingerprints.of_files([self.path]))])

    def place_of(self, path: LeafPath) -> ContiguousArray | None:
        """Where an array's values stand, if they do in C order."""
        return self._entries[path].place

    def read(self, path: LeafPath, window: Window | None = None) -> np.ndarray[Any, Any]:
        """An array's values, or a block of them.

        Raises:
            KeyError: there is no such array.
            CheckpointError: the values do not read.
        """
        import numpy as np

        entry = self._entries[path]
        if entry.place is not None:
            if entry.checksum is not None and path not in self._checked:
                check_bytes(self.path, entry.checksum)
                self._checked.add(path)
            return entry.place.read(window)
        whole = unpacked(self.path, entry.member)
        if whole.shape != entry.spec.shape or whole.dtype.name != entry.spec.dtype:
            raise damaged(self.path, "an entry is not what its header said when it was opened")
        # what `ascontiguousarray` does to an array without axes is to give it one
        return np.array(whole if window is None else whole[window], order="C")


def _split(text: str) -> tuple[Path, str | None]:
    """File and entry; a file that exists under the whole text wins."""
    path = path_at(text)
    if filesystem.exists(path):
        return path, None
    for suffix in ARRAY_SUFFIXES[1:]:
        head, found, entry = text.partition(f"{suffix}:")
        if found and entry:
            return path_at(head + suffix), entry
    return path, None
