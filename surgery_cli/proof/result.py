"""The proof of a run: the new checkpoint is opened from its staging place and held against the draft."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from surgery_cli.draft.kernel import Window
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, block_digest, digest_reading, leaf_digest
from surgery_cli.engine.executed import Executed
from surgery_cli.engine.forecast import reading_bytes
from surgery_cli.engine.grid import window_shape
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.engine.reading import read_values
from surgery_cli.errors import Problem, SurgeryError, UnseenError, WriteError
from surgery_cli.proof.references import other_than_planned
from surgery_cli.proof.structure import compare
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.contradictions import contradictions
from surgery_cli.store.open.item import PytreeItem, ReadBefore
from surgery_cli.store.orbax.sidecars import METADATA
from surgery_cli.store.write.early_reads import Vouching
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import NamedSharding
from surgery_cli.tree.specs import LeafSpec, TreeSpec
from surgery_cli.words.advice import NOTHING_LEFT, worded

MOST_SHOWN = 10


def verify_result(
    new: Path,
    draft: Draft,
    done: Executed,
    plans: Mapping[str, ItemPlan],
    *,
    item: str | None,
    prefix_items: bool,
    memory_bytes: int,
    listener: Listener | None,
    before: Mapping[str, ReadBefore] | None = None,
    vouching: Mapping[str, Vouching] = {},
) -> Checkpoint:
    """Compare every path, kind, shape and dtype with the draft, and read the written leaves back.

    Whatever was not written must refer to the bytes that its item's plan took, or hold the same ones.
    ``prefix_items``: paths of the draft begin with the items' names. ``before``: what was read before, by item; of
    it, what stands in ``new`` in the very same bytes is not parsed twice. ``vouching``: by item, what was read
    back before it was sent to a bucket, or as soon as it was on the disk, and is not read again. Returns the new
    checkpoint, as opened.

    Raises:
        WriteError: it is not what the draft says.
    """
    if not vouching:  # else all that was written is known, and was just looked at
        filesystem.forget(new)
    written = open_result(new, item=item, prefix_items=prefix_items, before=before)
    _compare_structure(written, draft)
    _refuse_contradictions(written, plans)
    rest = done.without(_vouched(written, plans, vouching))
    read_back(written, rest, memory_bytes, listener)
    if wrong := other_than_planned(written, plans, memory_bytes, vouching):
        what = "is not the stored values that were meant"
        raise WriteError.of([_problem(path, what) for path in wrong[:MOST_SHOWN]])
    return written


def open_result(
    new: Path,
    *,
    item: str | None,
    prefix_items: bool,
    step: int | None = None,
    before: Mapping[str, ReadBefore] | None = None,
) -> Checkpoint:
    """Open what was written, before it has its name; ``step``: of a run in which others stand by now.

    Raises:
        WriteError: it is no checkpoint.
        CheckpointError: some of it is gone.
    """
    try:
        location = locate(str(new), step=step, item=item, staging=True)
    except SurgeryError as error:
        filesystem.forget(new)
        if isinstance(error.__cause__, FileNotFoundError) or not filesystem.exists(new):
            raise unreadable(new, FileNotFoundError()) from error
        if isinstance(error, UnseenError):
            raise
        raise WriteError(
            f"what was written as '{new.name}' would not be opened as a checkpoint",
            why=str(error).replace("\n", " "),
            fix=worded("choose a destination with another name; {}", NOTHING_LEFT),
        ) from error
    # a step of which one item is left would be read without the item's name in front
    return Checkpoint(msgspec.structs.replace(location, prefix_items=prefix_items), before)


def _compare_structure(written: Checkpoint, draft: Draft) -> None:
    comparison = compare(draft.tree, written.tree)
    if not comparison.agrees:
        raise WriteError.of(
            [
                *(_problem(path, "is missing") for path in comparison.only_in_a),
                *(_problem(path, "was not asked for") for path in comparison.only_in_b),
                *(_problem(d.path, f"is {d.b}, not {d.a}") for d in comparison.changed),
            ][:MOST_SHOWN]
        )
    if wrong := _laid_out_otherwise(draft, written.tree):
        what = "has other chunks or another sharding than was asked for"
        raise WriteError.of([_problem(path, what) for path in wrong[:MOST_SHOWN]])


def _refuse_contradictions(written: Checkpoint, plans: Mapping[str, ItemPlan]) -> None:
    """What opens here, and Orbax would refuse by what the small files beside the arrays say of them."""
    for name in plans:
        item = written.items.get(name)
        for why in contradictions(item) if isinstance(item, PytreeItem) else ():
            raise WriteError(
                f"'{METADATA}' is not that of the arrays in what was written: Orbax could not restore it",
                why=why,
                fix=worded("{}; this is worth a report", NOTHING_LEFT),
            )


def _laid_out_otherwise(draft: Draft, written: TreeSpec) -> list[LeafPath]:
    """The leaves of which the draft says the layout, and that are stored in another one."""

    def layout(spec: LeafSpec, *, is_said: bool) -> tuple[Any, ...]:
        sharding = NamedSharding.of_text(spec.sharding) if is_said else None
        return spec.chunk_shape, spec.write_shape, sharding

    def is_otherwise(path: LeafPath) -> bool:
        asked = draft.tree[path]
        is_said = asked.sharding is not None  # else it gets one of the kind that others have
        return layout(asked, is_said=is_said) != layout(written[path], is_said=is_said)

    resharded = (path for path, leaf in draft.leaves.items() if leaf.is_resharded)
    return list(filter(is_otherwise, resharded))


class _Task(NamedTuple):
    """What was written of a leaf: how many bytes it has, how many are held to read it, and whether it agrees."""

    path: LeafPath
    bytes: int
    held: int
    agrees: Callable[[], bool]


def _vouched(
    written: Checkpoint,
    plans: Mapping[str, ItemPlan],
    vouching: Mapping[str, Vouching],
) -> set[LeafPath]:
    """The leaves of which all that was written was read back already, and stands as it did then."""
    found = set()
    for name, reads in vouching.items():
        for leaf in plans[name].computed:
            item, path = written.item_of(leaf.draft_path)
            array = item.array_of(path)
            if array is not None and reads.vouches_for(leaf, array):
                found.add(leaf.draft_path)
    return found


def _tasks(written: Checkpoint, done: Executed, memory_bytes: int) -> Iterator[_Task]:
    """Whole leaves, and blocks of leaves of which the rest was taken as it is."""
    for path, digest in done.digests.items():
        spec = written.tree[path]
        reading = digest_reading(spec, memory_bytes, digest.grid)
        agrees = partial(_is_leaf, written, path, digest, reading)
        yield _Task(path, spec.bytes, reading.held_bytes, agrees)
    parts = {**done.parts, **{path: cut.known for path, cut in done.cut.items()}}
    for path, blocks in parts.items():
        spec = written.tree[path]
        for window, expected in blocks:
            shape = window_shape(window)
            count = math.prod(shape) * item_bytes(spec.dtype)
            agrees = partial(_is_block, written, path, window, expected)
            yield _Task(path, count, reading_bytes(spec, shape), agrees)


def _is_leaf(written: Checkpoint, path: LeafPath, digest: LeafDigest, reading: Reading) -> bool:
    found = leaf_digest(written, path, written.tree[path], reading, digest.grid)
    return found.digest == digest.digest


def _is_block(written: Checkpoint, path: LeafPath, window: Window, digest: bytes) -> bool:
    return block_digest(read_values(written, path, window)) == digest


def read_back(
    written: Checkpoint, done: Executed, memory_bytes: int, listener: Listener | None
) -> None:
    """Hold what was written against what was computed.

    Raises:
        WriteError: it is something else.
    """
    tasks = list(_tasks(written, done, memory_bytes))
    written.expect(task.path for task in tasks)
    meter = Meter(listener, "verifying", sum(task.bytes for task in tasks))
    agreed = in_order(
        lambda task: task.agrees(), ((task, task.held) for task in tasks), memory_bytes
    )
    for task, agrees in zip(tasks, agreed, strict=True):
        if not agrees:
            raise WriteError.of([_problem(task.path, "does not read back as it was computed")])
        meter.advance(task.bytes, str(task.path))


def _problem(path: LeafPath, what: str) -> Problem:
    return Problem(
        f"'{path}' {what} in what was written",
        why="the result was read back before it got its name, and is not what the plan says",
        fix=worded("{}; this is worth a report", NOTHING_LEFT),
        path=str(path),
    )
