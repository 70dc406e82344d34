"""Which leaves a broken item had, from whatever names them: the metadata, what stands before its cut, or the names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from surgery_cli.inputs.json_decoding import decode_json, decode_python_json
from surgery_cli.proof.tree_files import document_faults
from surgery_cli.salvage.aggregate import Aggregate, aggregate_of
from surgery_cli.salvage.side_documents import array_records, sharding_names
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.orbax.sidecars import (
    EMPTY_TYPES,
    METADATA,
    TREE,
    VALUE_TYPES,
    Entry,
)
from surgery_cli.store.orbax.tree_metadata import entry_key, values_of_tree
from surgery_cli.tree.paths import Key, LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind

Origin = Literal[
    "metadata",
    "the file `checkpoint`",
    "metadata before its cut",
    "another checkpoint",
    "a script's function",
    "names of arrays",
    "the file before its break",
]


WHOLE: Final = ("metadata", "the file `checkpoint`")
"""Of the item's own, what tells all of its tree."""

_KNOWING: Final = frozenset(
    {*WHOLE, "another checkpoint", "a script's function", "the file before its break"}
)
"""Whence nesting is known, as well as names."""


class Likeness(msgspec.Struct, frozen=True):
    """The leaves of something else, whose structure stands for what is not known of an item.

    ``arrays`` are those of which no metadata says how they were saved.
    """

    entries: Mapping[LeafPath, Entry]
    origin: Origin
    arrays: Collection[LeafPath] = ()
    documents: Mapping[str, tuple[bytes, str]] = {}
    """What describes its arrays as they are stored, by stored name, with where that is."""

    def arrays_of(self, expected: Collection[str]) -> dict[LeafPath, Entry]:
        """Those arrays, called as what is recorded of them asks for."""
        types = {path: array_type(stored_name(path), expected) for path in self.arrays}
        return {path: {**self.entries[path], "value_type": kind} for path, kind in types.items()}


class Structure(msgspec.Struct, frozen=True):
    """The leaves by path, with what `_METADATA` says of each, and where that was found.

    ``expected``: stored names that some file gives to arrays, whether anything of them is there or not.
    """

    entries: dict[LeafPath, Entry]
    origin: Origin
    expected: frozenset[str]
    head: dict[str, Any]
    """``_METADATA`` but for its tree, where that can be read."""
    faults: dict[str, str]
    """Files that are not understood, and why."""
    odd: tuple[str, ...] = ()
    """What of ``_METADATA`` is damaged that no leaf, and no nesting, depends on."""
    recorded: Mapping[str, Sequence[Entry]] = {}
    """What the files in ``array_metadatas`` say of each array, by stored name."""
    unnamed: Mapping[str, LeafPath | None] = {}
    """What is stored and ``_METADATA`` does not name, with its path; None where a leaf stands in its way."""
    aggregate: Aggregate | None = None
    """What ``checkpoint`` holds, if Orbax wrote one."""
    placed_by_name: frozenset[LeafPath] = frozenset()
    """Paths of those of which their stored names alone tell where they belong."""

    @property
    def is_known(self) -> bool:
        """True if all that the tree was is known, empty nodes and types of containers among it."""
        is_damaged = self.origin == "metadata" and METADATA in self.faults
        return self.origin in _KNOWING and not is_damaged and not self.placed_by_name

    @property
    def is_of_metadata(self) -> bool:
        """True if ``_METADATA`` is whole, and names all that is stored."""
        is_whole = METADATA not in self.faults and not self.odd
        return self.origin == "metadata" and is_whole and not self.unnamed


def structure_of(item: Path) -> Structure:
    """What the files beside the arrays say."""
    faults: dict[str, str] = {}
    recorded = array_records(item, faults)
    expected = sharding_names(item, faults) | recorded.keys()
    head: dict[str, Any] = {}
    odd_fields: tuple[str, ...] = ()
    entries: dict[LeafPath, Entry] = {}
    origin: Origin = "names of arrays"
    raw = _read(item / METADATA)
    if raw is not None:
        try:
            fields = decode_python_json(raw, type=dict[str, msgspec.Raw])
            tree = decode_json(fields.pop(TREE), type=dict[str, msgspec.Raw])
            head = {name: decode_python_json(field) for name, field in fields.items()}
            odd_fields = tuple(document_faults(decode_python_json(raw)))
            origin = "metadata"
            pairs: Iterable[tuple[str, bytes]] = (
                (text, bytes(entry)) for text, entry in tree.items()
            )
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            faults[METADATA] = str(error).split("\n", 1)[0]
            pairs, head = _before_the_cut(raw), {}
            origin = "metadata before its cut"
        entries, odd = _entries(pairs)
        if odd:
            faults.setdefault(METADATA, f"{odd} of its entries do not agree with themselves")
        if not entries and origin != "metadata":
            origin = "names of arrays"
    aggregate = aggregate_of(item, faults)
    if aggregate is not None and (raw is None or METADATA in faults):
        entries = aggregate.entries(VALUE_TYPES[LeafKind.ARRAY]) | entries
        if not aggregate.fault:
            origin = "the file `checkpoint`"
        elif origin != "metadata":
            origin = "the file before its break"
    return Structure(
        entries,
        origin,
        frozenset(expected),
        head,
        faults,
        odd_fields,
        recorded,
        aggregate=aggregate,
    )


def _entries(pairs: Iterable[tuple[str, bytes]]) -> tuple[dict[LeafPath, Entry], int]:
    """The leaves of entries that say of themselves what they should; and how many do not.

    Each says its path twice: one of which the two disagree is damaged, and left out.
    """
    found: dict[LeafPath, Entry] = {}
    odd = 0
    for text, raw in pairs:
        try:
            ((path, entry),) = values_of_tree(b'{"":%b}' % raw).items()
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            odd += 1
            continue
        if entry_key(path) != text:
            odd += 1
            continue
        odd += "skip_deserialize" not in entry
        if not isinstance(entry.get("write_shape", []), list):  # what is stored says it again
            odd, entry = odd + 1, {k: v for k, v in entry.items() if k != "write_shape"}
        found[path] = {"skip_deserialize": False, **entry}
    return found, odd


def named(
    structure: Structure, names: set[str], texts: Collection[str], like: Likeness | None
) -> Structure:
    """The same with a path for every array that was found or named somewhere and has none yet, and for all ``texts``.

    ``like`` stands for what is not known. Beside a whole ``_METADATA`` only what is stored counts.
    """
    entries, origin = dict(structure.entries), structure.origin
    given = {} if like is None else {**like.entries, **like.arrays_of(structure.expected)}
    if like is not None and given and origin not in WHOLE:
        entries = {path: entries.get(path, entry) for path, entry in given.items()} | entries
        origin = like.origin
    known = {stored_name(path) for path in entries}
    is_complete = origin in WHOLE and (origin != "metadata" or METADATA not in structure.faults)
    others = frozenset() if is_complete else structure.expected
    placed = {stored_name(path): path for path in given}
    numbers = {path[:at] for path in entries for at, key in enumerate(path) if type(key) is int}
    unnamed: dict[str, LeafPath | None] = {}
    for name in sorted(names.union(others, texts) - known):
        path = placed.get(name) or _path_by_name(name, numbers)
        entry = given.get(path, {}) if name not in texts else {}
        text = VALUE_TYPES[LeafKind.STRING]
        if entry.get("value_type") in (None, text, *EMPTY_TYPES):
            kind = text if name in texts else array_type(name, structure.expected)
            entry = {"value_type": kind, "skip_deserialize": False}
        unnamed[name] = path if not is_complete or _makes_room(entries, path) else None
        if unnamed[name] is not None:
            entries[path] = entry
    return msgspec.structs.replace(
        structure,
        entries=entries,
        origin=origin,
        unnamed=unnamed if is_complete else {},
        placed_by_name=frozenset(
            path for name, path in unnamed.items() if path is not None and name not in placed
        ),
    )


def _path_by_name(name: str, numbers: Collection[tuple[Key, ...]]) -> LeafPath:
    """The path that a stored name tells; what stands beside numbered things is in a list, and no dict."""
    keys: list[Key] = []
    for key in name.split("."):
        keys.append(int(key) if key.isdecimal() and tuple(keys) in numbers else key)
    return LeafPath(keys)


def _makes_room(entries: dict[LeafPath, Entry], path: LeafPath) -> bool:
    """True if a leaf can stand there; what is said to be empty above it is not, and goes."""
    above = [LeafPath(path[:at]) for at in range(1, len(path))]
    standing = [one for one in above if one in entries]
    if any(entries[one]["value_type"] not in EMPTY_TYPES for one in standing):
        return False
    if any(one[: len(path)] == path for one in entries):
        return False
    for one in standing:
        del entries[one]
    return True


def array_type(name: str, expected: Collection[str]) -> str:
    """What an array is called of which its name alone is known.

    Of a JAX array every save records the sharding, or the chunks; Orbax looks there for what is called so.
    """
    return VALUE_TYPES[LeafKind.ARRAY if name in expected else LeafKind.NUMPY]


def _before_the_cut(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """The entries of leaves that stand whole in a ``_METADATA`` that ends, or breaks, in its tree.

    A name that does not read is the empty one, which agrees with no entry.
    """
    start = raw.find(f'"{TREE}"'.encode())
    text = raw[start:].decode(errors="replace") if start >= 0 else ""
    for match in _ENTRY.finditer(text):
        whole = _object_at(text, match.end() - 1)
        if whole is not None:
            yield _name(match[1]), whole.encode()


def _name(text: str) -> str:
    try:
        return decode_json(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return ""


_ENTRY: Final = re.compile(r'"(\((?:[^"\\]|\\.)*\))"\s*:\s*\{')


def _object_at(text: str, start: int) -> str | None:
    """The JSON object that begins there; None if it does not end."""
    depth, in_text, position = 0, False, start
    while position < len(text):
        character = text[position]
        if in_text:
            position += character == "\\"
            in_text = character != '"'
        elif character == '"':
            in_text = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if not depth:
                return text[start : position + 1]
        position += 1
    return None


def _read(path: Path) -> bytes | None:
    return read_small(path) if filesystem.is_file(path) else None
