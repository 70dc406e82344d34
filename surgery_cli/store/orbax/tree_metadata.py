"""The tree that stands in ``_METADATA``: paths key by key, and what is said of the value at each."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.tree.paths import Key, LeafPath

Entry = dict[str, Any]

_SEQUENCE, _DICT = 1, 2


class _KeyRecord(msgspec.Struct, gc=False):
    """A key of a path in ``_METADATA``."""

    key: str | int
    key_type: int


class _TreeEntry(msgspec.Struct, gc=False):
    """A leaf in ``_METADATA``."""

    key_metadata: list[_KeyRecord]
    value_metadata: msgspec.Raw


def values_of_tree(raw: bytes | msgspec.Raw) -> dict[LeafPath, Entry]:
    """The ``value_metadata`` of every leaf by path, in order; the few that differ are parsed once each.

    Raises:
        ValueError, TypeError, KeyError: the tree has another form.
    """
    tree = decode_json(raw, type=dict[str, _TreeEntry])
    found: dict[LeafPath, Entry] = {}
    parsed: dict[bytes, Entry] = {}
    for entry in tree.values():
        text = bytes(entry.value_metadata)
        value = parsed.get(text)
        if value is None:
            value = parsed[text] = decode_json(text)
            if not isinstance(value["value_type"], str):
                raise TypeError("value_type is no text")
        keys = [
            sys.intern(record.key)  # `kernel` stands in 100,000 paths
            if record.key_type == _DICT and type(record.key) is str
            else _typed_key(record)
            for record in entry.key_metadata
        ]
        found[LeafPath(keys)] = value
    return found


def _typed_key(record: _KeyRecord) -> Key:
    if record.key_type == _DICT:
        return sys.intern(str(record.key))
    if record.key_type == _SEQUENCE:
        return int(record.key)
    raise ValueError(f"key_type {record.key_type}")


def key_records(path: LeafPath) -> list[Entry]:
    """The ``key_metadata`` of a path."""
    return [
        {"key": str(key), "key_type": _SEQUENCE if isinstance(key, int) else _DICT} for key in path
    ]


def entry_key(path: LeafPath) -> str:
    """The key of a leaf's entry in ``_METADATA``: the text of a tuple of its keys."""
    return str(tuple(str(key) for key in path))
