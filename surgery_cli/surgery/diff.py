"""Diff: structure and values of two checkpoints, reading only what is not the same bytes on both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from surgery_cli import reports
from surgery_cli.engine.bounded_reads import PairReading, pair_reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import PlanError
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.structure import Comparison, compare
from surgery_cli.proof.values import ValueDifference, value_difference
from surgery_cli.salvage.opening import opened
from surgery_cli.script.user_code import Say
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.settings.values import tolerance_of
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.as_opened import as_opened
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.leaf_names import Names, document_names, named_leaves, spellings
from surgery_cli.surgery.look_memory import Look, Looks, planned_looks
from surgery_cli.surgery.sides import Side, items_apart, lacking_items, sides
from surgery_cli.tree.containers import alike_but_for_containers, unlike_containers
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath


@reads
def diff(
    a: str,
    b: str,
    patterns: Sequence[str] = (),
    *,
    step: int | None = None,
    item: str | None = None,
    structure: bool = False,
    rtol: float = 0.0,
    atol: float = 0.0,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Difference:
    """Structure and values of two checkpoints; NaN equals NaN, and -0 equals 0.

    Values agree that are apart by no more than ``atol + rtol * magnitude``. ``structure`` leaves values out. ``say`` is
    told, before values are read, what takes more memory than ``memory_bytes``, or more time.

    Raises:
        PlanError: nothing stands there, a pattern names nothing on either side, or a tolerance is none.
        CheckpointError: what stands there cannot be read, or not in the memory that there is.
    """
    _refuse_boundless(rtol=rtol, atol=atol)
    one, other = (opened(text, step=step, item=item) for text in (a, b))
    left, right = sides(one, other)
    containers = alike_but_for_containers(left.tree, right.tree)
    right = right.renamed(containers)
    wanted = named_leaves(patterns, left.tree, right.tree)
    comparison = compare(left.tree, right.tree)
    names = document_names({**left.tree.texts, **right.tree.texts})
    changed = _changes(comparison, wanted, names)
    unlike = {d.path for d in comparison.changed}
    both = [p for p in left.tree if p in right.tree and p in wanted and p not in unlike]
    shared = set() if structure else {path for path in both if _is_same_bytes(path, left, right)}
    unread = [] if structure else [path for path in both if path not in shared]
    with as_opened(one, other):
        looks = planned_looks(_looks(left, right, names, unread), memory_bytes, say)
        changed += _changed_values(left, right, names, looks, listener, rtol, atol)
    order = {names[path]: n for n, path in enumerate(in_listed_order(left.tree))}
    changed.sort(key=lambda change: order[change.path])
    changed[:0] = _nodes({p: there for p, there in containers.items() if p in wanted})
    return reports.Difference(
        **_sides(one, other),
        only_in_a=[names[p] for p in in_listed_order(comparison.only_in_a) if p in wanted],
        only_in_b=[names[p] for p in in_listed_order(comparison.only_in_b) if p in wanted],
        items_apart=items_apart(left, right),
        changed=changed,
        equal=len(both) - sum(change.what == "values" for change in changed),
        equal_by_reference=len(shared),
        structure_only=structure,
        rtol=rtol,
        atol=atol,
        **({} if patterns else _beside(one, other)),
        agreeing=_others([names[path] for path in both], changed),
        not_named=len(names) - len(wanted) if patterns else UNSET,
        spellings=spellings({path: names[path] for path in wanted}),
    )


def _sides(left: Checkpoint, right: Checkpoint) -> dict[str, Any]:
    """The fields of the document that say what was opened."""
    of_both = {"assumptions": assumed_steps(left, right)}
    return {**_side("a", left), **_side("b", right), **of_both}


def _side(name: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields of the document that say what was opened as `a`, or as `b`."""
    at = checkpoint.location
    return {
        name: str(at.root),
        f"chosen_{name}": at.chosen,
        f"step_{name}": at.step,
        f"named_step_{name}": at.named_step,
        f"address_{name}": at.address,
    }


def _changes(
    comparison: Comparison, wanted: Collection[LeafPath], names: Names
) -> list[reports.Change]:
    found = [d for d in comparison.changed if d.path in wanted]
    return [reports.Change(path=names[d.path], what=d.what, a=d.a, b=d.b) for d in found]


def _nodes(moved: Mapping[LeafPath, LeafPath]) -> list[reports.Change]:
    """The nodes that are other containers on the other side."""
    return [
        reports.Change(path=str(node), what="container", a=here, b=there)
        for node, (here, there) in unlike_containers(moved).items()
    ]


def _refuse_boundless(**tolerances: float) -> None:
    for name, tolerance in tolerances.items():
        try:
            tolerance_of(tolerance)
        except ValueError as error:
            raise PlanError(f"`{name}`: {error}", field=name) from None


def _others(names: Sequence[str], changed: Sequence[reports.Change]) -> list[str]:
    differing = {change.path for change in changed}
    return [name for name in names if name not in differing]


def _is_same_bytes(path: LeafPath, left: Side, right: Side) -> bool:
    """True if both refer to the same stored bytes."""
    identity = left.identity(path)
    return identity is not None and identity == right.identity(path)


def _looks(
    left: Side, right: Side, names: Names, paths: Sequence[LeafPath]
) -> dict[LeafPath, Look[PairReading]]:
    sides = {path: (left.tree[path], right.tree[path]) for path in paths}
    return {p: Look(names[p], specs, partial(pair_reading, *specs)) for p, specs in sides.items()}


def _changed_values(
    left: Side,
    right: Side,
    names: Names,
    looks: Looks[PairReading],
    listener: Listener | None,
    rtol: float,
    atol: float,
) -> Iterator[reports.Change]:
    """The leaves whose values differ; all of ``looks`` are read, on both sides."""
    paths = list(looks.readings)
    meter = Meter(listener, "comparing", sum(left.tree[path].bytes for path in paths))
    left.expect(paths)
    right.expect(paths)

    def compared(path: LeafPath) -> ValueDifference | None:
        reading = looks.readings[path]
        return value_difference(path, left, right, reading, rtol=rtol, atol=atol)

    differences = in_order(compared, looks.costs, looks.limit_bytes)
    for path, found in zip(paths, differences, strict=True):
        spec, name = left.tree[path], names[path]
        if found is not None:
            fields = msgspec.structs.asdict(found)
            yield reports.Change(path=name, what="values", size=spec.size, **fields)
        meter.advance(spec.bytes, name)


def _beside(left: Checkpoint, right: Checkpoint) -> dict[str, Any]:
    """The fields of the document that name the items that are not opened."""
    return {
        "not_compared": sorted({*left.location.other_items, *right.location.other_items}),
        "items_only_in_a": lacking_items(left, right),
        "items_only_in_b": lacking_items(right, left),
    }
