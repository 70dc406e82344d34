"""The small files beside an item's arrays: ``_METADATA``, ``_sharding``, ``array_metadatas``, ``_strings.json``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json, decode_python_json
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.orbax.tree_metadata import values_of_tree
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

METADATA: Final = "_METADATA"
STORES_FILL_VALUES: Final = "store_array_data_equal_to_fill_value"
TREE: Final = "tree_metadata"
"""The field of ``_METADATA`` that holds the tree."""
SHARDING: Final = "_sharding"
ARRAY_METADATAS: Final = "array_metadatas"
PROCESS_FILE: Final = "process_"
"""How the names of the files in ``array_metadatas`` begin; other files there are foreign."""
STRINGS: Final = "_strings.json"
AGGREGATE: Final = "checkpoint"

EMPTY_TYPES: Final = frozenset({"None", "Dict", "List", "Tuple", "NamedTuple"})

Entry = dict[str, Any]


def is_sidecar(place: Path) -> bool:
    """True for a file beside the arrays by which readers go; ``place`` is its path from the item's directory on."""
    if place.parent == Path(ARRAY_METADATAS):
        return place.name.startswith(PROCESS_FILE)
    return place.parent == Path() and place.name in (METADATA, SHARDING, STRINGS)


def is_process_file(name: str) -> bool:
    """True for a name in ``array_metadatas`` that Orbax reads; it refuses any other there."""
    return name.startswith(PROCESS_FILE) and name.removeprefix(PROCESS_FILE).isdecimal()


def sharding_key(name: str) -> str:
    """The key of a leaf in ``_sharding``: URL-safe base64 of its stored name."""
    return base64.urlsafe_b64encode(name.encode()).decode()


class _ArrayRecord(msgspec.Struct, gc=False):
    """An array in ``array_metadatas``."""

    array_metadata: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.array_metadata.get("param_name"), str):
            raise TypeError("param_name is no text")
        if not isinstance(self.array_metadata.get("ext_metadata"), dict | None):
            raise TypeError("ext_metadata is no object")
        for name in ("write_shape", "chunk_shape"):
            shape = self.array_metadata.get(name, [])
            if not isinstance(shape, list) or not all(type(n) is int for n in shape):
                raise TypeError(f"{name} is no list of integers")


class _DamagedFileError(CheckpointError):
    """A file is there, and it cannot be understood."""


class Sidecars:
    """The parsed sidecars of an item directory; a file that is not there is None or empty.

    ``known``: sidecars that were parsed before. A tree that stands here in the very same bytes is not parsed again.
    """

    def __init__(self, directory: Path, known: Sidecars | None = None) -> None:
        self.directory = directory
        self._known = known
        self._tree: msgspec.Raw | None = None
        self._damaged: dict[str, str] = {}
        self.found: set[str] = set()
        """The names of the files that were read."""
        self.metadata: dict[str, Any] | None = self._metadata_without_tree()
        """``_METADATA`` but for its tree, of which ``values`` are what is needed."""
        self.sharding: dict[str, str] | None = self._expendable(SHARDING)
        self.strings: dict[str, Any] | None = self._json(STRINGS)
        """Text leaves, where their stored names lead as JSON Pointers."""

    def _json(self, name: str) -> dict[str, Any] | None:
        raw = self._read(name)
        if raw is None:
            return None
        with _damage(self.directory / name):
            return decode_json(raw, type=dict[str, Any])

    def _expendable(self, name: str) -> dict[str, Any] | None:
        """A file without which every leaf can be read: None if it is damaged, which is kept."""
        if self._is_folder(name):
            return None
        try:
            return self._json(name)
        except _DamagedFileError as error:
            self._damaged[name] = error.problems[0].why
            return None

    def _is_folder(self, name: str) -> bool:
        """True if a directory stands in the place of a file: Orbax fails at it, as it does not without any."""
        if not filesystem.is_folder(self.directory / name):
            return False
        self._damaged[name] = "a directory stands in its place"
        return True

    @property
    def damaged(self) -> dict[str, str]:
        """The files that are not understood, though every leaf can be read without them, and why."""
        _ = self.array_entries
        return self._damaged

    def _metadata_without_tree(self) -> dict[str, Any] | None:
        raw = None if self._is_folder(METADATA) else self._read(METADATA)
        if raw is None:
            return None
        with _damage(self.directory / METADATA):
            fields = decode_python_json(raw, type=dict[str, msgspec.Raw])
            self._tree = fields.pop(TREE, None)
            return {name: decode_python_json(field) for name, field in fields.items()}

    def _read(self, name: str) -> bytes | None:
        path = self.directory / name
        if not filesystem.is_file(path):
            refuse_special(path)
            return None
        self.found.add(name)
        return read_small(path)

    @cached_property
    def array_metadatas(self) -> dict[str, dict[str, Any]]:
        """The documents of ``array_metadatas`` by file name, one for each process that wrote; not those damaged."""
        found = {}
        for name in self.array_metadata_files:
            document = self._expendable(f"{ARRAY_METADATAS}/{name}")
            if document is not None:
                found[name] = document
        return found

    @cached_property
    def array_metadata_files(self) -> list[str]:
        """The names of the files in ``array_metadatas``, one for each process that wrote."""
        standing = filesystem.entries_if_any(self.directory / ARRAY_METADATAS)
        return [entry.name for entry in standing if entry.name.startswith(PROCESS_FILE)]

    @cached_property
    def array_entries(self) -> dict[str, Entry]:
        """What ``array_metadatas`` says of each array, by stored name."""
        found: dict[str, Entry] = {}
        for name, document in self.array_metadatas.items():
            try:
                entries = msgspec.convert(document.get("array_metadatas", []), list[_ArrayRecord])
            except msgspec.ValidationError as error:
                self._damaged[f"{ARRAY_METADATAS}/{name}"] = str(error)
                continue
            found |= {str(e.array_metadata["param_name"]): e.array_metadata for e in entries}
        return found

    @cached_property
    def values(self) -> dict[LeafPath, Entry] | None:
        """The ``value_metadata`` of every leaf in ``_METADATA`` by path, in order; None if there is no such file.

        Leaves of which the same is said share one document.

        Raises:
            CheckpointError: the file has another form.
        """
        if self.metadata is None:
            return None
        mark, known = self.tree_mark, self._known
        if known is not None and known.tree_mark == mark:
            return known.values
        try:
            if self._tree is None:
                raise KeyError(TREE)
            found = values_of_tree(self._tree)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"'{self.directory / METADATA}' has an unknown form",
                why=f"{type(error).__name__}: {error}",
                fix="it is damaged, or written by a release of Orbax that this program does not know",
            ) from None
        self._tree = None  # tens of megabytes, and its mark is known
        return found

    @cached_property
    def tree_mark(self) -> bytes:
        """A digest of the bytes of the tree in ``_METADATA``."""
        return hashlib.sha256(self._tree or b"").digest()

    @cached_property
    def states_write_shapes(self) -> bool:
        """True if ``_METADATA`` says of arrays in which shape they are written."""
        return any("write_shape" in value for value in (self.values or {}).values())

    @cached_property
    def key_impls(self) -> dict[str, str]:
        """The implementations of the arrays that are typed PRNG keys, by stored name."""
        found = {}
        for name, entry in self.array_entries.items():
            extra = entry.get("ext_metadata")
            impl = extra.get("random_key_impl") if isinstance(extra, dict) else None
            if impl is not None:
                found[name] = str(impl)
        return found

    def sharding_of(self, name: str) -> str | None:
        """Orbax's JSON for the sharding of an array, which is a text in that of all; None for what is no text."""
        text: object = self.sharding.get(sharding_key(name)) if self.sharding else None
        return text if isinstance(text, str) else None

    @property
    def use_zarr3(self) -> bool | None:
        return None if self.metadata is None else self.metadata.get("use_zarr3")

    @property
    def stores_fill_values(self) -> bool:
        """True if chunks that equal the fill value were stored too, so that a missing chunk is damage."""
        return bool((self.metadata or {}).get(STORES_FILL_VALUES, False))


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """What makes a sidecar unreadable is damage of that file.

    Raises:
        CheckpointError: it is no JSON, or no object.
    """
    try:
        yield
    except (msgspec.DecodeError, ValueError) as error:
        is_no_object = isinstance(error, msgspec.ValidationError)
        raise _DamagedFileError(
            f"'{path}' cannot be understood",
            why="not a JSON object" if is_no_object else str(error),
            fix="it is damaged or truncated; copy the checkpoint again from where it was whole",
        ) from None


def kind_of(value_type: str, key_impl: str | None) -> LeafKind:
    """The kind of a leaf from its ``value_type``.

    Raises:
        CheckpointError: a type that is not known.
    """
    if value_type in EMPTY_TYPES:
        return LeafKind.EMPTY
    if key_impl is not None:
        return LeafKind.KEY
    try:
        return _KINDS[value_type]
    except KeyError:
        raise CheckpointError(
            f"leaves of type '{value_type}' are not known",
            why="they come from a custom type handler, or from a newer release of Orbax",
            fix="restore and save the checkpoint with arrays in their place",
        ) from None


_KINDS: Final = {
    "jax.Array": LeafKind.ARRAY,
    "np.ndarray": LeafKind.NUMPY,
    "scalar": LeafKind.SCALAR,
    "string": LeafKind.STRING,
}
VALUE_TYPES: Final = {kind: name for name, kind in _KINDS.items()} | {LeafKind.KEY: "jax.Array"}


def value_type(spec: LeafSpec) -> str:
    """What ``_METADATA`` calls a leaf."""
    return spec.empty if spec.kind is LeafKind.EMPTY else VALUE_TYPES[spec.kind]
