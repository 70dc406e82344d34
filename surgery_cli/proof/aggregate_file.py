"""The file ``checkpoint`` of older releases, held against the arrays that it refers to and what Orbax reads in it."""

from __future__ import annotations

from collections.abc import Iterator

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.sidecars import AGGREGATE
from surgery_cli.tree.paths import stored_name
from surgery_cli.tree.specs import LeafKind


def aggregate_faults(item: PytreeItem) -> Iterator[tuple[str, str]]:
    """What Orbax refuses of the file, or takes for a value; it is read beside ``_METADATA``, too."""
    file = item.aggregate
    if file is None:
        return
    try:
        if not item.is_t5x:
            arrays = {} if item.store is None else item.store.arrays
            for why in _faults(file, frozenset(arrays)):
                yield AGGREGATE, why
    except UnseenError:
        raise
    except CheckpointError as error:
        problem = error.problems[0]
        yield AGGREGATE, f"{problem.what}: {problem.why}"


def _faults(file: MsgpackFile, arrays: frozenset[str]) -> Iterator[str]:
    places = file.placeholders
    if (odd := min(file.scan.oddities, default=None)) is not None:
        yield f"no writer of Orbax has written it: {odd.why} (at byte {odd.at})"
    if file.scan.integer_keys:
        yield f"keys in it are numbers (first: '{min(map(str, file.scan.integer_keys))}'), and Orbax refuses them"
    for path, leaf in file.scan.leaves.items():
        name = stored_name(path)
        if leaf.spec.kind is not LeafKind.STRING:
            continue
        if path in places and places[path] != name:
            yield f"'{path}' refers to the array '{places[path]}' there, and Orbax restores '{name}'"
        elif path not in places and name in arrays:
            yield f"it has a text where it should refer to the array '{name}': Orbax restores the text"
