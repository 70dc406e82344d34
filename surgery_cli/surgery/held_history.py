"""Whether what stands beside a record is what its last run has left there: the leaves that it changed tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from surgery_cli.engine.progress import Meter
from surgery_cli.errors import CheckpointError
from surgery_cli.proof.file_marks import another_or_damaged, is_its_file, stands_beside
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.own_record import names_of
from surgery_cli.proof.record_places import record_key
from surgery_cli.proof.surgery_json import Record
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.seal_digests import digested_leaves, planned
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted

_MOST_BYTES: Final = 64 << 20
_MOST_NAMED: Final = 3


def check_history(checkpoint: Checkpoint, memory_bytes: int, *, of_all: bool = False) -> None:
    """Hold leaves that the last run on record changed against their digests, where something else may stand there.

    What is saved over a file, or a bare directory, leaves the record beside it, and samples of it may be the same. The
    smallest leaves come first, up to 64 MiB and one at least; ``of_all`` reads them all.

    Raises:
        CheckpointError: one is not as on record, or cannot be read; or the record cannot.
    """
    record = read_record(checkpoint)
    if record is None or not record.draft or not stands_beside(checkpoint):
        return
    if is_its_file(record, checkpoint):
        return
    tree = checkpoint.tree
    paths = sorted(_recorded(checkpoint, record), key=lambda path: tree[path].bytes)
    sizes = accumulate(tree[path].bytes for path in paths)
    count = len(paths) if of_all else max(sum(size <= _MOST_BYTES for size in sizes), 1)
    looks = planned(checkpoint, record.digests, memory_bytes, lambda _: None, paths[:count])
    found = digested_leaves(checkpoint, looks, Meter(None, "", 0)).digests
    known = {path: record_key(checkpoint, path) for path in paths[:count]}
    _refuse(checkpoint, [p for p, key in known.items() if found[key] != record.digests[key]])


def check_undone(checkpoint: Checkpoint, memory_bytes: int) -> None:
    """The same before the run is undone: of all leaves, none of which may have been sealed as something else since.

    Raises:
        CheckpointError: so.
    """
    record = read_record(checkpoint)
    if record is not None and (other := sealed_otherwise(checkpoint, record)):
        raise CheckpointError(
            f"the run that is on record of '{checkpoint.address}' has not written {_named(other)} as it stands there",
            why="something else stood there when it was sealed anew: damage, or another training's",
            fix="`surgery log` says when; undo the run on a copy of what it has written",
        )
    check_history(checkpoint, memory_bytes, of_all=True)


def sealed_otherwise(checkpoint: Checkpoint, record: Record) -> list[LeafPath]:
    """The leaves of the last run that were sealed anew since, as something else than it has left there."""
    left = {leaf.path: leaf.digest for leaf in runs_of(checkpoint, record)[0].leaves if leaf.digest}
    found = []
    for path, text in checkpoint.tree.texts.items():
        digest = next((left[name] for name in names_of(path, text) if name in left), None)
        now = record.digests.get(record_key(checkpoint, path))
        if digest is not None and now is not None and now.digest != digest:
            found.append(path)
    return found


def _recorded(checkpoint: Checkpoint, record: Record) -> list[LeafPath]:
    """The leaves with a digest that the last run changed; of one that changed none, all with a digest."""
    changed = {leaf.path for leaf in runs_of(checkpoint, record)[0].leaves if leaf.digest}
    every = [path for path in checkpoint.tree if record_key(checkpoint, path) in record.digests]
    texts = checkpoint.tree.texts
    own = [path for path in every if changed.intersection(names_of(path, texts[path]))]
    return own or every


def _refuse(checkpoint: Checkpoint, other: Sequence[LeafPath]) -> None:
    if other:
        have = "has" if len(other) == 1 else "have"
        raise another_or_damaged(checkpoint, f"{_named(other)} {have} other values than on record")


def _named(leaves: Sequence[LeafPath]) -> str:
    return quoted(map(str, leaves), _MOST_NAMED, word="and")
