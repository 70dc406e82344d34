"""What a run will ask of services that keep buckets: requests and bytes by kind, told before it asks.

What grows with the checkpoint is counted one by one: objects that are carried, chunks that are read, transactions. The
small requests around it (locks, manifests, lists) are a number for each place, seen in runs; a test holds all of it
against what a server saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below
from surgery_cli.store.filesystem.request_counts import Requests
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, METADATA, SHARDING, STRINGS
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES
from surgery_cli.store.write.carried_files import carried_files, carried_to, unchosen_files
from surgery_cli.store.write.item_plan import ItemPlan, Way, is_converted
from surgery_cli.store.write.ocdbt_references import names_gone
from surgery_cli.store.write.sidecars import is_rewritten
from surgery_cli.store.write.strategy import (
    are_moves_overwritten,
    is_per_leaf,
    nodes_left,
    nodes_written,
)
from surgery_cli.surgery.export_requests import add_export
from surgery_cli.surgery.exporting import export_document
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.read_requests import TOGETHER_BYTES, add_values_read, requests_in_files
from surgery_cli.surgery.replacing_requests import LINE_BYTES, add_replacing, names_built
from surgery_cli.surgery.request_tally import Tally
from surgery_cli.surgery.sealing_costs import add_sealing
from surgery_cli.surgery.space import record_bytes
from surgery_cli.surgery.step_requests import LOCK_BYTES, add_step
from surgery_cli.surgery.value_requests import add_written, transactions

_LOOKS_AT_SOURCE: Final = 2
"""Lists of a source, once all is read: whether it is what it was."""

_OTHERS: Final = 9
"""Lists and deletions at the destination: what stands there, whether it stays there, the lock that goes."""

_OTHERS_OF_REFERENCES: Final = 2
"""Lists of a database that refers to what it took of a donor: which data files are there, and needed no more."""

_OTHERS_OF_JOURNAL: Final = 8
"""Lists of what an earlier run has left, and of the journal when it goes, and looks at the lock."""

_READS_OF_DATABASE: Final = 4
"""Its manifest and the tree's node, before it is written to and when the result is opened."""

_READS_OF_KNOWN: Final = 2
"""The same, of what goes on from a tree that is in memory."""

_MANIFEST_BYTES: Final = 124
"""What a manifest of one version holds."""

_ENTRY_BYTES: Final = 350
"""What an entry of a journal holds, about: for each block of a transaction some 60 bytes."""

_RECORD_BYTES: Final = 1000
"""What a record says of the run, beside its leaves: the plan, fingerprints, the software."""

_LOOKED_INTO_BYTES: Final = 64 << 10
"""Files beside the data of no more than this were read when the source was opened, and are still here."""


def requests_of_run(
    prepared: Prepared, options: Options, destination: Path | None, so_far: Requests
) -> Requests | None:
    """Requests of the whole run, ``so_far`` among them, which preparing it took; None where it asks for none.

    Without a ``destination`` the result is taken to stand beside the source.
    """
    source = prepared.checkpoint.location.root
    target = destination or source
    if not (isinstance(source, BucketPath) or isinstance(target, BucketPath) or so_far.total):
        return None
    tally = Tally(target, so_far)
    memory_bytes = bytes_to_use(options.memory_bytes)
    buffered = not (options.resume or options.distributed)
    add_values_read(tally, prepared, memory_bytes)
    _add_around(tally, prepared, options)
    if prepared.output is None:
        _add_checkpoint(tally, prepared, target, memory_bytes, options, buffered=buffered)
        names = names_built(prepared)
    else:
        files = export_document(prepared.checkpoint, prepared.plans, prepared.output, destination)
        names = add_export(tally, prepared, files, destination)
    if options.seal:
        add_sealing(tally, prepared)
    if options.resume:
        _add_journal(tally, prepared, memory_bytes)
    is_taken = options.force and filesystem.exists(target)
    for place in _places(prepared):
        if filesystem.is_folder(place):  # it is listed once more, when all is read
            tally.list_source(place, sum(1 for _ in files_below(place)))
    tally.list_destination()
    if isinstance(target, BucketPath) and (is_taken or not buffered):
        add_replacing(tally, names, target, is_taken=is_taken, is_noted=options.resume)
    return tally.requests


def _places(prepared: Prepared) -> list[Path]:
    """Where the source and the donors lie; two may be one."""
    return list(dict.fromkeys(one.place_on_disk for one in prepared.sources.values()))


def _add_carried(tally: Tally, prepared: Prepared, target: Path) -> None:
    """Files that come along as they are: what no edit can touch, and data that is taken by reference."""
    root = prepared.checkpoint.location.root
    items = (plan.item for plan in prepared.kept_plans.values())
    carried = carried_files(prepared.checkpoint, items, left_out=prepared.left_out)
    for file in carried_to(target, carried):
        was_read = not file.is_mark and file.size <= _LOOKED_INTO_BYTES
        tally.carry(root, file.size, was_read=was_read)
    for file in carried_to(target, unchosen_files(prepared.checkpoint)):
        tally.carry(root, file.size)
    for name, plan in prepared.kept_plans.items():
        if not prepared.compact[name]:
            for place, stays in _files_taken(plan):
                size, is_document = filesystem.size(place), place.name in DOCUMENT_NAMES.values()
                tally.carry(place, size, was_read=is_document, stays=stays)


def _files_taken(plan: ItemPlan) -> Iterator[tuple[Path, bool]]:
    """The data files that the leaves need which are taken by reference, a donor's manifest among them.

    Each with whether it stays: once the nodes of the tree are written anew, nothing refers to those of before.
    """
    arrays: dict[int, tuple[ArrayStore, list[StoredArray]]] = {}
    for leaf in plan.by_reference:
        for taken in leaf.taken:
            arrays.setdefault(id(taken.store), (taken.store, []))[1].append(taken.array)
    own = plan.item.store if isinstance(plan.item, PytreeItem) else None
    if isinstance(own, OcdbtStore):  # its tree is cloned, whatever is taken
        arrays.setdefault(id(own), (own, []))
    for store, found in arrays.values():
        if isinstance(store, OcdbtStore):
            left = store.files_of(found, nodes_left(plan, store) if store is own else ())
            yield from ((store.directory / file, file in left) for file in store.files_of(found))
            if store is not own:
                yield store.directory / MANIFEST, False
        else:
            files = (store.directory / array.name / key for array in found for key in array.keys)
            yield from ((file, True) for file in files)


def _add_around(tally: Tally, prepared: Prepared, options: Options) -> None:
    """The lock and the record; looks at the source, and at what stands at the destination."""
    for place in _places(prepared):
        tally.look_at(place, _LOOKS_AT_SOURCE)
    tally.other(_OTHERS)
    tally.write_beside(1, LOCK_BYTES)
    record = _RECORD_BYTES + record_bytes(prepared, options)
    tally.write(1, record)
    tally.know(1, record)


def _add_checkpoint(
    tally: Tally,
    prepared: Prepared,
    target: Path,
    memory_bytes: int,
    options: Options,
    *,
    buffered: bool,
) -> None:
    """What is computed, and what comes along; marks, manifests and other small files."""
    _add_carried(tally, prepared, target)
    for name, plan in prepared.kept_plans.items():
        compact = prepared.compact[name]
        is_sent = isinstance(target, BucketPath)  # what is written to a disk is not held in memory
        is_read_before = buffered or (is_per_leaf(plan.item) and not options.distributed)
        is_buffered = is_sent and is_read_before
        add_written(tally, plan, memory_bytes, compact=compact, buffered=is_buffered)
    add_step(tally, prepared, target)
    for name, plan in prepared.kept_plans.items():
        if isinstance(plan.item, PytreeItem):
            _add_small(tally, plan.item, plan, compact=prepared.compact[name], buffered=buffered)
        else:
            _add_file(tally, plan, buffered=buffered)


def _add_small(
    tally: Tally, item: PytreeItem, plan: ItemPlan, *, compact: bool, buffered: bool
) -> None:
    """What stands beside the values: sidecars, manifests, nodes of the tree. They are about as large as the source's,
    for as many leaves.
    """
    files = _sidecars(item)
    size = sum(map(filesystem.size, files)) * len(plan.leaves) // max(len(item.tree), 1)
    if is_rewritten(item, plan):
        tally.write(len(files), size, objects=0)  # in the place of those that come along
    tally.read_back(len(files), size)
    tally.know(len(files), size)
    store = item.store
    if is_per_leaf(item):
        return
    nodes = nodes_written(plan, store, compact=compact) if isinstance(store, OcdbtStore) else 0
    is_known = buffered and isinstance(store, OcdbtStore) and store.has_tree_in_memory
    looks = _READS_OF_KNOWN if is_known else _READS_OF_DATABASE
    tally.read_back(looks, (1 if is_known else 2) * nodes + _MANIFEST_BYTES)
    tally.know(1, _MANIFEST_BYTES)
    each = 1 if buffered else 2
    # when there is a database, and once it has no history
    tally.write(each, _MANIFEST_BYTES + nodes, objects=1)
    moved = plan.rearranged or plan.of(Way.MOVE, Way.GRAFT)
    if plan.of(Way.GRAFT):
        tally.other(_OTHERS_OF_REFERENCES)
    if compact or not isinstance(store, OcdbtStore):
        return
    if moved or names_gone(plan, store):
        tally.write(each, objects=0 if are_moves_overwritten(plan, store) else 1)


def _sidecars(item: PytreeItem) -> list[Path]:
    """Small files that are written anew where something in them changes, and read when the result is opened."""
    single = {METADATA: item.sidecars.metadata, SHARDING: item.sidecars.sharding}
    single[STRINGS] = item.sidecars.strings
    found = [item.directory / name for name, file in single.items() if file is not None]
    return found + [
        item.directory / ARRAY_METADATAS / file for file in item.sidecars.array_metadatas
    ]


def _add_file(tally: Tally, plan: ItemPlan, *, buffered: bool) -> None:
    """A format that is files: written anew, or as a database with two small files."""
    sizes = [leaf.spec.bytes for leaf in plan.leaves]
    size = sum(sizes)
    # what says where values are stands beside each of them: it is read as the result is opened
    apart = 1 + sum(one >= TOGETHER_BYTES for one in sizes)
    beside = min(apart * TOGETHER_BYTES, size)
    if is_converted(plan.item):
        tally.write(3 if buffered else 4, objects=3)
        tally.copy(1, LOCK_BYTES)  # the mark
        tally.read_back(apart, beside)
        return
    tally.write_file(size)
    tally.read_back(apart + requests_in_files(sizes), size + beside)


def _add_journal(tally: Tally, prepared: Prepared, memory_bytes: int) -> None:
    """What `--resume` notes, an object an entry: what is made, that all else stands, and which objects that are, each
    transaction, the end.
    """
    commits = 0
    for plan in prepared.plans.values():
        some = transactions(plan, memory_bytes)
        commits += some
        if not is_per_leaf(plan.item):
            tally.read_back(2 * some)  # of each, the manifest and the tree that it has changed
    entries = 3 + commits
    tally.write_beside(entries, entries * _ENTRY_BYTES + tally.built.requests * LINE_BYTES)
    tally.other(_OTHERS_OF_JOURNAL + entries)
    tally.list_destination()
