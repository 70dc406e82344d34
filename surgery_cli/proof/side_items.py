"""Items that are not opened as trees, held against what Orbax's handler of each must find to restore it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.inputs.json_decoding import decode_python_json
from surgery_cli.proof.damaged_text import what_stands_instead
from surgery_cli.proof.sharding_file import lacking_entries, lacks_shardings
from surgery_cli.proof.tree_files import NO_METADATA, Fault, tree_faults
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.filesystem.protocol import COMMIT_MARK, Entry
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.per_leaf import PerLeafStore
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, METADATA, SHARDING

# orbax-checkpoint: the file names of its handlers, and of a manager's metrics; a script may give another one.
_JSON_FILES: Final = ("metadata", "data.json", "metrics")
_PROTO_FILES: Final = ("proto.pbtxt", "descriptor.pbtxt")
_ASIDE: Final = re.compile(
    r"(metadata|data\.json|metrics|proto\.pbtxt)(\.(bak|old|orig|tmp|part\w*|\d+)|~)"
)
"""What one of these files is called that somebody has put aside."""
_ROOT_FILES: Final = ("_ROOT_METADATA",)
_KEY_METADATA: Final = "_metadata"
"""How the name of the folder ends that says what the random key beside it is."""


class _JaxKey(msgspec.Struct):
    typed: bool


class _NumpyKey(msgspec.Struct):
    legacy: bool


_FORMS: Final[Mapping[str, Any]] = {
    "jax_random_key_metadata/metadata": _JaxKey,
    "np_random_key_metadata/metadata": _NumpyKey,
    "metrics/metrics": dict[str, Any],
}
"""What Orbax asks of documents that it writes for itself, by the end of their path; a manager gives a script's own
``best_fn`` the metrics of every step when it begins."""


def item_faults(folder: Path, handler: str) -> Iterator[Fault]:
    """What is wrong with an item, by path from its ``folder``; ``handler`` is the one on record, '' for none.

    What a handler of the user's own asks for, only it knows: all that can be told is an item without any file.
    """
    name = handler.rsplit(".", 1)[-1]
    if name.startswith(("Json", "Metrics")):
        faults = _document_faults(folder, name, _JSON_FILES, is_json=True)
    elif name.startswith("Proto"):
        faults = _document_faults(folder, name, _PROTO_FILES, is_json=False)
    elif name.startswith("Array"):
        faults = _array_at(folder)
    elif "RandomKey" in name:
        faults = _key_faults(folder, name)
    else:
        faults = _any_faults(folder, name)
    found = list(faults)
    yield from found
    named = {file for file, _ in found}
    for file, why in _below(folder):
        if file not in named:
            yield file, why


def trees_in(folder: Path, handler: str) -> Iterator[str]:
    """The folders of an item in which its arrays stand, '' for its own; ``handler`` as in ``item_faults``."""
    name = handler.rsplit(".", 1)[-1]
    if name.startswith(("Json", "Metrics", "Proto")):
        return
    if name.startswith("Array"):
        yield ""
    elif "RandomKey" in name:
        folders = (one for one, entry in _standing(folder).items() if entry.is_folder)
        yield from (one for one in folders if not one.endswith(_KEY_METADATA))
    else:
        described = [
            prefix.removesuffix("/")
            for prefix, entries in filesystem.below(folder)
            if {entry.name for entry in entries} & {METADATA, ARRAY_METADATAS}
        ]
        # releases that record no handler describe no arrays either
        yield from described or [""] * (not handler and PerLeafStore.recognises(folder))


def fault_text(file: str, why: str) -> str:
    """A fault as a sentence, where the item is named before it."""
    return why if file in ("", ".") else f"'{file}': {why}"


def json_fault(file: Path, form: Any = None) -> str:
    """Why a file is not JSON, or no file; '' if it is, or nothing stands there.

    ``form``: the type that its reader takes it for, where its path does not tell.
    """
    if not filesystem.is_file(file):
        return what_stands_instead(file)
    raw = filesystem.read(file)
    try:
        decode_python_json(raw)
    except msgspec.DecodeError as error:
        return f"not JSON: {error}"
    try:
        decode_python_json(raw, form or _FORMS.get(f"{file.parent.name}/{file.name}", Any))
    except msgspec.ValidationError as error:
        return f"JSON of another form than Orbax writes there: {error}"
    return ""


def root_file_fault(file: Path) -> str:
    """What is wrong with a file that stands beside the steps of a run."""
    return json_fault(file) if file.name in (*_JSON_FILES, *_ROOT_FILES) else ""


def _document_faults(
    folder: Path, handler: str, names: tuple[str, ...], *, is_json: bool, form: Any = None
) -> Iterator[Fault]:
    """The one file of an item, under a name of Orbax's or one of the script's own."""
    standing = _standing(folder)
    known = [name for name in names if name in standing]
    for name in known:
        fault = json_fault(folder / name, form) if is_json else what_stands_instead(folder / name)
        if fault:
            yield name, fault
    if known:
        return
    files = [name for name, entry in standing.items() if entry.is_file]
    aside = next((name for name in files if _ASIDE.fullmatch(name)), None)
    if aside is not None:
        yield aside, f"{handler}, which wrote the item, reads no file of this name"
    elif not files:
        yield "", f"it holds no file, and {handler}, which wrote it, restores it from one"
    elif is_json and not any(_is_json(folder / name) for name in files):
        yield "", f"it holds no JSON, and {handler}, which wrote it, restores it from that"


def _key_faults(folder: Path, handler: str) -> Iterator[Fault]:
    """A random key is two folders: its values as a tree or an array, and a document that says what they are."""
    folders = [name for name, entry in _standing(folder).items() if entry.is_folder]
    about = next((name for name in folders if name.endswith(_KEY_METADATA)), None)
    values = [name for name in folders if name != about]
    if about is None or not values:
        lacking = "says what the key is" if about is None else "holds its values"
        yield "", f"it lacks the folder that {lacking}, and {handler} restores it from both"
    for name in values:
        at = _array_at if handler.startswith("Jax") else _tree_at
        yield from _within(name, at(folder / name))
    if about is not None:
        form = _NumpyKey if handler.startswith("Numpy") else _JaxKey
        faults = _document_faults(folder / about, handler, _JSON_FILES, is_json=True, form=form)
        yield from _within(about, faults)


def _any_faults(folder: Path, handler: str) -> Iterator[Fault]:
    """An item of a handler that is not known: the trees in it, and its JSON by Orbax's names."""
    has_file = False
    for prefix, entries in filesystem.below(folder):
        names = {entry.name for entry in entries}
        has_file |= any(entry.is_file and entry.name != COMMIT_MARK for entry in entries)
        if names & {METADATA, ARRAY_METADATAS}:
            yield from _within(prefix, _tree_at(folder / prefix))
        for name in sorted(names.intersection(_JSON_FILES)):
            if filesystem.is_file(folder / prefix / name) and (
                fault := json_fault(folder / prefix / name)
            ):
                yield prefix + name, fault
    if handler and not has_file:
        yield "", f"it holds no file; what its handler {handler} asks for, only that knows"


def _below(folder: Path) -> Iterator[Fault]:
    """Links in an item that lead nowhere: none of Orbax's handlers makes one."""
    for prefix, entries in filesystem.below(folder):
        for entry in entries:
            if not (entry.is_folder or entry.is_file) and (
                fault := what_stands_instead(folder / prefix / entry.name)
            ):
                yield prefix + entry.name, fault


def _tree_at(folder: Path) -> Iterator[Fault]:
    """A tree that is not opened as one; what makes it unreadable is its fault."""
    try:
        item = PytreeItem(folder)
        yield from tree_faults(item)
        if lacks_shardings(item):
            yield SHARDING, "it is not there, and Orbax restores the item by it"
        for path in lacking_entries(item):
            yield SHARDING, f"it has no entry for '{path}'"
        for leaf in item.leaves:
            item.open(leaf)
    except UnseenError:
        raise
    except CheckpointError as error:
        problem = error.problems[0]
        yield "", problem.why or problem.what


def _array_at(folder: Path) -> Iterator[Fault]:
    """As ``_tree_at``, of one array by itself: without ``_METADATA`` its handler takes it for one of zarr 2."""
    for fault in _tree_at(folder):
        if fault != NO_METADATA or PytreeItem(folder).layout.endswith("zarr3"):
            yield fault


def _within(name: str, faults: Iterator[Fault]) -> Iterator[Fault]:
    return ((str(Path(name, file)), why) for file, why in faults)


def _standing(folder: Path) -> Mapping[str, Entry]:
    """What stands in an item beside its mark, by name."""
    entries = filesystem.entries(folder)
    return {entry.name: entry for entry in entries if entry.name != COMMIT_MARK}


def _is_json(file: Path) -> bool:
    try:
        with reading(file):
            decode_python_json(read_small(file))
    except UnseenError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, CheckpointError):
        return False
    return True
