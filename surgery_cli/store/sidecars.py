"""The small files beside an item's arrays: ``_METADATA``, ``_sharding``, ``array_metadatas``, ``_strings.json``."""

from __future__ import annotations

import base64
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind

METADATA: Final = "_METADATA"
SHARDING: Final = "_sharding"
ARRAY_METADATAS: Final = "array_metadatas"
PROCESS_FILE: Final = "process_"
"""How the names of the files in ``array_metadatas`` begin; other files there are foreign."""
STRINGS: Final = "_strings.json"
AGGREGATE: Final = "checkpoint"
PLACEHOLDER: Final = "PLACEHOLDER://"

EMPTY_TYPES: Final = frozenset({"None", "Dict", "List", "Tuple", "NamedTuple"})
_SEQUENCE, _DICT = 1, 2
MAX_SIDECAR_BYTES: Final = 1 << 30
"""No honest sidecar is larger; a larger one is refused before memory is asked for."""

Entry = dict[str, Any]


def stored_name(path: LeafPath) -> str:
    """The name under which Orbax stores a leaf: its keys joined by dots."""
    return ".".join(map(str, path))


def sharding_key(name: str) -> str:
    """The key of a leaf in ``_sharding``: URL-safe base64 of its stored name."""
    return base64.urlsafe_b64encode(name.encode()).decode()


class Sidecars:
    """The parsed sidecars of an item directory; a file that is not there is None or empty."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metadata: dict[str, Any] | None = self._json(METADATA)
        self.sharding: dict[str, str] | None = self._json(SHARDING)
        self.strings: dict[str, str] | None = self._json(STRINGS)

    def _json(self, name: str) -> dict[str, Any] | None:
        path = self.directory / name
        if not path.is_file():
            return None
        try:
            if path.stat().st_size > MAX_SIDECAR_BYTES:
                raise ValueError(f"{path.stat().st_size} bytes are more than any sidecar has")
            document = msgspec.json.decode(path.read_bytes())
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
        except (msgspec.DecodeError, ValueError) as error:
            raise CheckpointError(
                f"'{path}' cannot be understood",
                why=str(error),
                fix="it is damaged or truncated; copy the checkpoint again from where it was whole",
            ) from None
        return document

    @cached_property
    def array_metadatas(self) -> dict[str, dict[str, Any]]:
        """The documents of ``array_metadatas`` by file name, one for each process that wrote."""
        folder = self.directory / ARRAY_METADATAS
        if not folder.is_dir():
            return {}
        found = {}
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(PROCESS_FILE):
                continue
            document = self._json(f"{ARRAY_METADATAS}/{path.name}")
            if document is not None:
                found[path.name] = document
        return found

    @cached_property
    def array_entries(self) -> dict[str, Entry]:
        """What ``array_metadatas`` says of each array, by stored name."""
        return {
            entry["array_metadata"]["param_name"]: entry["array_metadata"]
            for document in self.array_metadatas.values()
            for entry in document.get("array_metadatas", [])
        }

    @cached_property
    def entries(self) -> dict[LeafPath, Entry] | None:
        """The entries of ``_METADATA`` by path, in order; None if there is no such file.

        Raises:
            CheckpointError: the file has another form.
        """
        if self.metadata is None:
            return None
        try:
            found = {}
            for entry in self.metadata["tree_metadata"].values():
                path = LeafPath(map(_typed_key, entry["key_metadata"]))
                if not isinstance(entry["value_metadata"]["value_type"], str):
                    raise TypeError("value_type is no text")
                found[path] = entry
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"'{self.directory / METADATA}' has an unknown form",
                why=f"{type(error).__name__}: {error}",
                fix="it is damaged, or written by a release of Orbax that this program does not know",
            ) from None
        return found

    def key_impl(self, name: str) -> str | None:
        """The implementation of a typed PRNG key array, None for other arrays."""
        extension = (self.array_entries.get(name) or {}).get("ext_metadata") or {}
        impl = extension.get("random_key_impl")
        return str(impl) if impl is not None else None

    def sharding_of(self, name: str) -> str | None:
        """Orbax's JSON for the sharding of an array."""
        return self.sharding.get(sharding_key(name)) if self.sharding else None

    @property
    def use_zarr3(self) -> bool | None:
        return None if self.metadata is None else self.metadata.get("use_zarr3")

    @property
    def stores_fill_values(self) -> bool:
        """True if chunks that equal the fill value were stored too, so that a missing chunk is damage."""
        return bool((self.metadata or {}).get("store_array_data_equal_to_fill_value", False))


def _typed_key(record: Entry) -> Key:
    if record["key_type"] == _SEQUENCE:
        return int(record["key"])
    if record["key_type"] != _DICT:
        raise ValueError(f"key_type {record['key_type']}")
    return str(record["key"])


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


def key_records(path: LeafPath) -> list[Entry]:
    """The ``key_metadata`` of a path."""
    return [
        {"key": str(key), "key_type": _SEQUENCE if isinstance(key, int) else _DICT} for key in path
    ]


def entry_key(path: LeafPath) -> str:
    """The key of a leaf's entry in ``_METADATA``: the text of a tuple of its keys."""
    return str(tuple(str(key) for key in path))
