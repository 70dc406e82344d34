"""Inspect: what is in a checkpoint, from metadata; statistics and digests from streamed values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from surgery_cli import reports
from surgery_cli.engine.bounded_reads import Reading, block_reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import leaf_digest
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.engine.reading import Values, read_scalar, read_values
from surgery_cli.errors import SurgeryError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.soundness import largest_told
from surgery_cli.proof.statistics import statistics
from surgery_cli.salvage.opening import opened
from surgery_cli.script.user_code import Say
from surgery_cli.settings.reshard import Reshard
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.as_opened import as_opened
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item import foreign_folders
from surgery_cli.surgery.bad_leaves import bad_ones, tell_bad
from surgery_cli.surgery.layout import layout_reads
from surgery_cli.surgery.leaf_names import Names, containers_of, document_names, named_leaves
from surgery_cli.surgery.look_memory import Look, Looks, planned_looks
from surgery_cli.surgery.notes import link_notes, opened_notes
from surgery_cli.surgery.open_ends import open_ends, settings_at_an_end
from surgery_cli.tree.dtypes import is_complex, is_floating
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage


@reads
def inspect(
    argument: str,
    patterns: Sequence[str] = (),
    *,
    step: int | None = None,
    item: str | None = None,
    params: str | None = None,
    stats: bool = False,
    only: Literal["bad"] | None = None,
    digests: bool = False,
    optimizer: bool = False,
    layout: Reshard | None = None,
    hosts: int | None = None,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Inspection:
    """What is in a checkpoint; from metadata alone unless ``stats``, ``only`` or ``digests`` ask for values.

    ``only`` leaves out what is not bad; the mesh of a ``layout`` tells what ``hosts`` read; ``say`` hears of memory.

    Raises:
        PlanError: nothing stands there, or a pattern names nothing.
        CheckpointError: what stands there cannot be read, or not in the memory that there is.
    """
    checkpoint = opened(argument, step=step, item=item)
    location, tree = checkpoint.location, checkpoint.tree
    named, names = named_leaves(patterns, tree), document_names(tree.texts)
    chosen = in_listed_order(path for path in tree if path in named)
    surveyed = survey(tree, params=params)
    rows = [_row(checkpoint, path, surveyed, names) for path in chosen]
    notes = _notes(checkpoint) + (open_ends(surveyed) if optimizer else [])
    if stats or only or digests:
        looks = planned_looks(_looks(checkpoint, chosen, names), memory_bytes, say)
        _add_values(rows, checkpoint, looks, stats or bool(only), digests, listener)
        notes += tell_bad(rows, chosen, surveyed)
    rows, chosen = bad_ones(rows, chosen) if only else (rows, chosen)
    notes += _add_numbers(rows, chosen, checkpoint, surveyed if optimizer else OptimizerSurvey())
    return reports.Inspection(
        checkpoint=str(location.root),
        layout=checkpoint.layout,
        step=location.step,
        steps=location.steps,
        items=[name for name in location.items if name],
        other_items=list(location.other_items),
        foreign_files=_foreign_names(checkpoint),
        chosen=location.chosen,
        assumptions=assumed_steps(checkpoint),
        only=only,
        looked_at=None if only is None else len(named),
        leaves=rows,
        all_leaves=len(tree),
        parameters=_parameters(checkpoint, surveyed, set(chosen)),
        **_totals(rows, checkpoint),
        optimizer=_states(surveyed, set(chosen)) if optimizer else None,
        states_in_question=[p.path or "." for p in surveyed.questions] if optimizer else [],
        hosts=None if layout is None else layout_reads(checkpoint, chosen, surveyed, layout, hosts),
        containers=containers_of(checkpoint, chosen) if digests else None,
        notes=notes,
    )


def _row(
    checkpoint: Checkpoint, path: LeafPath, surveyed: OptimizerSurvey, names: Names
) -> reports.LeafRow:
    spec = checkpoint.tree[path]
    slot = surveyed.slots.get(path)
    clock = surveyed.clocks.get(path)
    text, spelling = checkpoint.tree.texts[path], path.spelling
    return reports.LeafRow(
        path=names[path],
        kind=spec.kind.value,
        shape=spec.shape,
        dtype=spec.dtype,
        bytes=spec.bytes,
        stored_bytes=spec.stored_bytes,
        chunk_shape=spec.chunk_shape,
        write_shape=spec.write_shape,
        type_text=spec.type_text,
        spelling=spelling if text != spelling or names[path] != spelling else "",
        twin_of=names.get(slot.param, str(slot.param)) if slot else None,
        slot=slot.name if slot else None,
        clock=clock.drives if clock else None,
        drives=len(clock.slots) if clock else 0,
        hyperparameter=surveyed.hyperparams.get(path),
    )


def _add_numbers(
    rows: Sequence[reports.LeafRow],
    paths: Sequence[LeafPath],
    checkpoint: Checkpoint,
    surveyed: OptimizerSurvey,
) -> Iterator[Note]:
    """Read what the counters and settings of the optimizer say; what is wrong with a setting is given."""
    values = {}
    for row, path in zip(rows, paths, strict=True):
        if path in surveyed.clocks or path in surveyed.hyperparams:
            row.value = values[path] = read_scalar(checkpoint, path)
    return settings_at_an_end(surveyed, checkpoint.tree, values)


def _states(surveyed: OptimizerSurvey, named: Collection[LeafPath]) -> list[reports.OptimizerState]:
    """The states that hold slots among the ``named`` leaves, in stored order."""
    found: dict[LeafPath, reports.OptimizerState] = {}
    for path, slot in surveyed.slots.items():
        if path not in named or not slot.in_optimizer or slot.relation == "hole":
            continue
        owner = slot.state
        if owner not in found:
            found[owner] = reports.OptimizerState(
                path=str(owner),
                family=slot.optimizer,
                slots={},
                unsure="; or ".join(slot.settled_by),
            )
        found[owner].slots[slot.name] = found[owner].slots.get(slot.name, 0) + 1
    return list(found.values())


def _looks(
    checkpoint: Checkpoint, paths: Sequence[LeafPath], names: Names
) -> dict[LeafPath, Look[Reading]]:
    specs = {path: checkpoint.tree[path] for path in paths}
    return {p: Look(names[p], (spec,), partial(block_reading, spec)) for p, spec in specs.items()}


def _add_values(
    listed: Sequence[reports.LeafRow],
    checkpoint: Checkpoint,
    looks: Looks[Reading],
    stats: bool,
    digests: bool,
    listener: Listener | None,
) -> None:
    """Read every leaf of the rows for statistics, digests, or both."""
    rows = dict(zip(looks.readings, listed, strict=True))
    meter = Meter(listener, "reading", sum(row.bytes for row in listed))
    checkpoint.expect(rows)

    def add(path: LeafPath) -> None:
        reading = looks.readings[path]
        if stats:
            _add_statistics(rows[path], checkpoint, path, reading)
        if digests:
            digest = leaf_digest(checkpoint, path, checkpoint.tree[path], reading)
            rows[path].digest, rows[path].grid = digest.digest, digest.grid

    with as_opened(checkpoint):
        added = in_order(add, looks.costs, looks.limit_bytes)
        for row, _ in zip(rows.values(), added, strict=True):
            meter.advance(row.bytes, row.path)


def _add_statistics(
    row: reports.LeafRow, checkpoint: Checkpoint, path: LeafPath, reading: Reading
) -> None:
    spec = checkpoint.tree[path]
    if spec.kind in (LeafKind.SCALAR, LeafKind.STRING):
        row.value = read_scalar(checkpoint, path)
    if spec.has_array and spec.kind is not LeafKind.KEY and spec.size:
        largest = largest_told(spec.dtype)
        if reading.part == spec.shape:
            block = read_values(checkpoint, path)  # both passes look at what was read once
            row.statistics = statistics(lambda: [block], largest)
        else:
            row.statistics = statistics(lambda: _parts(checkpoint, path, reading), largest)


def _parts(checkpoint: Checkpoint, path: LeafPath, reading: Reading) -> Iterator[Values]:
    """The values of a leaf, part after part."""
    spec = checkpoint.tree[path]
    for _, parts in reading.windows(spec.shape):
        for part in parts:
            yield reading.read(checkpoint, path, spec, part)


def _parameters(
    checkpoint: Checkpoint, surveyed: OptimizerSurvey, named: Collection[LeafPath]
) -> int:
    """How many numbers of the ``named`` leaves are trained: elements of arrays below the roots of params.

    A Flax NNX state stores all variables of a model as leaves called ``value``, without their types. There, integers,
    booleans and keys (counters and streams of random numbers) are left out, and so are ``mean`` and ``var`` of a module
    that has a ``scale`` or ``bias`` as well (running statistics; a norm with neither is counted).
    """
    roots = surveyed.params_roots
    below = {p: spec for p, spec in checkpoint.tree.items() if any(map(p.is_below, roots))}
    is_nnx = all(path[-1:] == ("value",) for path in below)
    return sum(
        spec.size
        for path, spec in below.items()
        if path in named
        and spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY)
        and not (is_nnx and _is_untrained_variable(path, spec, below))
    )


def _is_untrained_variable(path: LeafPath, spec: LeafSpec, below: Collection[LeafPath]) -> bool:
    variable = path.parent
    if not is_floating(spec.dtype) and not is_complex(spec.dtype):
        return True
    if not variable or variable[-1] not in ("mean", "var"):
        return False
    return any(variable.parent / (name, "value") in below for name in ("scale", "bias"))


def _totals(rows: Sequence[reports.LeafRow], checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields of the document that sum up its rows, and what no leaf refers to."""
    return {
        "dead_bytes": checkpoint.dead_bytes,
        "total_leaves": len(rows),
        "total_bytes": sum(row.bytes for row in rows),
        "total_stored_bytes": sum(row.stored_bytes or 0 for row in rows),
        "by_dtype": _by_dtype(rows),
    }


def _by_dtype(rows: Sequence[reports.LeafRow]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        if row.bytes:
            found[row.dtype] = found.get(row.dtype, 0) + row.bytes
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _foreign_names(checkpoint: Checkpoint) -> list[str]:
    """What Orbax does not know; folders of a per-leaf item are told from leaves only when it is opened."""
    items = (item for item in checkpoint.items.values() if isinstance(item, PytreeItem))
    folders = (folder for item in items for folder in foreign_folders(item))
    return [path.name for path in (*checkpoint.location.foreign, *folders)]


def _notes(checkpoint: Checkpoint) -> list[Note]:
    notes = [*opened_notes(checkpoint), *link_notes(checkpoint)]
    if checkpoint.dead_bytes:
        said = f"{checkpoint.dead_bytes:,} bytes in data files belong to no leaf"
        notes.append(Remark(DocsPage.COMPACT, said))
    if checkpoint.location.unfinished:
        names = ", ".join(f"'{name}'" for name in checkpoint.location.unfinished)
        notes.append(Remark(DocsPage.DOCTOR, f"unfinished saves were left out: {names}"))
    return notes


def complete_path(argument: str, prefix: str) -> list[str]:
    """Nodes and leaves that continue ``prefix`` by one key, as they are typed; empty if it cannot be opened."""
    try:
        tree = open_checkpoint(argument).tree
    except SurgeryError:
        return []
    found: dict[str, None] = {}
    for path in tree:
        ways = (str(LeafPath(path[:depth])) for depth in range(1, len(path) + 1))
        found.update(dict.fromkeys([way for way in ways if way.startswith(prefix)][:1]))
    return list(found)
