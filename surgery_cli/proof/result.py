"""The proof of a run: the new checkpoint is opened from its staging place and held against the draft."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, leaf_digest
from surgery_cli.engine.forecast import reading_bytes
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import Problem, SurgeryError, WriteError
from surgery_cli.proof.references import other_than_planned
from surgery_cli.proof.structure import compare
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import ReadBefore
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import NOTHING_LEFT, worded

MOST_SHOWN = 10


def verify_result(
    new: Path,
    draft: Draft,
    digests: Mapping[LeafPath, LeafDigest],
    plans: Mapping[str, ItemPlan],
    *,
    item: str | None,
    prefix_items: bool,
    memory_bytes: int,
    listener: Listener | None,
    before: Mapping[str, ReadBefore] | None = None,
) -> Checkpoint:
    """Compare every path, kind, shape and dtype with the draft, and read the written leaves back.

    Every other leaf must refer to the bytes that its item's plan took, or hold the same ones.
    ``prefix_items``: paths of the draft begin with the items' names. ``before``: what was read before, by item; of
    it, what stands in ``new`` in the very same bytes is not parsed twice. Returns the new checkpoint, as opened.

    Raises:
        WriteError: it is not what the draft says.
    """
    try:
        location = locate(str(new), item=item, staging=True)
    except SurgeryError as error:
        raise WriteError(
            f"what was written as '{new.name}' would not be opened as a checkpoint",
            why=str(error).replace("\n", " "),
            fix=worded("choose a destination with another name; {}", NOTHING_LEFT),
        ) from error
    # a step of which one item is left would be read without the item's name in front
    written = Checkpoint(msgspec.structs.replace(location, prefix_items=prefix_items), before)
    comparison = compare(draft.tree, written.tree)
    if not comparison.agrees:
        raise WriteError.of(
            [
                *(_problem(path, "is missing") for path in comparison.only_in_a),
                *(_problem(path, "was not asked for") for path in comparison.only_in_b),
                *(_problem(d.path, f"is {d.b}, not {d.a}") for d in comparison.changed),
            ][:MOST_SHOWN]
        )
    meter = Meter(listener, "verifying", sum(draft.leaves[p].spec.bytes for p in digests))
    paths = list(digests)
    held = ((path, reading_bytes(written.tree[path], digests[path].grid)) for path in paths)
    found = in_order(
        lambda path: leaf_digest(written, path, written.tree[path], digests[path].grid),
        held,
        memory_bytes,
    )
    for path, digest in zip(paths, found, strict=True):
        if digest.digest != digests[path].digest:
            raise WriteError.of([_problem(path, "does not read back as it was computed")])
        meter.advance(written.tree[path].bytes, str(path))
    if wrong := other_than_planned(written, plans, memory_bytes):
        what = "is not the stored values that were meant"
        raise WriteError.of([_problem(path, what) for path in wrong[:MOST_SHOWN]])
    return written


def _problem(path: LeafPath, what: str) -> Problem:
    return Problem(
        f"'{path}' {what} in what was written",
        why="the result was read back before it got its name, and is not what the plan says",
        fix=worded("{}; this is worth a report", NOTHING_LEFT),
        path=str(path),
    )
