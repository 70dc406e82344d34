"""Plan and apply: from a checkpoint and a plan to a preview, and from there to a new checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from surgery_cli import reports
from surgery_cli.draft import SOURCE, Draft, same_sources
from surgery_cli.engine.evaluation import read_bytes
from surgery_cli.engine.execution import Executed, Execution
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import (
    CheckpointError,
    PlanError,
    SurgeryError,
    WriteError,
)
from surgery_cli.plan import Plan
from surgery_cli.resolution import resolve
from surgery_cli.store.array_file import ArrayFile
from surgery_cli.store.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.file_writers import CONVERTED_LAYOUT
from surgery_cli.store.item_plan import ItemPlan, Way, is_converted
from surgery_cli.store.links import Linker, LinkMode
from surgery_cli.store.staging import Staging, check_destination, recover_old, set_aside_of
from surgery_cli.store.step_writer import StepWriter, carried_bytes, draft_items, plan_items
from surgery_cli.store.strategy import Costs, costs_of_references, is_compact
from surgery_cli.surgery.contract import Say, check_draft, read_script
from surgery_cli.surgery.memory import check_memory, memory_notes
from surgery_cli.surgery.notes import dropped_item_notes, inference_notes, leftover_notes
from surgery_cli.surgery.optimizers import Look, look_at_restarts, survey_state
from surgery_cli.surgery.records import (
    Record,
    digests_after,
    new_record,
    read_record,
    record_path,
    write_record,
)
from surgery_cli.surgery.space import check_space, standing_parent
from surgery_cli.tree.paths import LeafPath
from surgery_cli.verification.result import verify_result

ARRAY_SUFFIXES = (".npy", ".npz", ".safetensors")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What every command that plans or writes may be told, beside the plan.

    ``memory_bytes`` bounds the bytes in flight. ``optimizer`` is the policy for twins where an edit names none.
    """

    step: int | None = None
    item: str | None = None
    as_step: int | None = None
    params: str | None = None
    seed: int | None = None
    device: str = "host"
    mesh: str | None = None
    memory_bytes: int = 4 << 30
    optimizer: str | None = None
    optimizer_kind: str | dict[str, str] | None = None
    """The optax factory that made the optimizer state, for the whole tree or by node; above the plan's own."""
    allow_non_finite: bool = False
    force: bool = False
    link: Literal["auto", "reflink", "hard", "never"] = "auto"
    compact: Literal["auto", "always", "never"] = "auto"
    expected_draft: str | None = None
    """``apply --draft sha256:…``."""
    like_init: str | None = None
    """``FILE.py:FUNCTION``: the draft must be what a restore into the function's pytree takes."""


def _effective(plan: Plan, options: Options) -> Plan:
    """The plan with what the options say above it: what is recorded can be run again.

    Of the optimizer's kind, a name replaces the plan's, nodes add to it.
    """
    above = {
        name: value
        for name in ("seed", "optimizer", "params")
        if (value := getattr(options, name)) is not None
    }
    plan = msgspec.structs.replace(plan, **above)
    given, own = options.optimizer_kind, plan.optimizer_kind
    if given is None:
        return plan
    if isinstance(given, dict) and "" not in given and own is not None:
        given = {**({"": own} if isinstance(own, str) else own), **given}
    return msgspec.structs.replace(plan, optimizer_kind=given)


class Prepared(msgspec.Struct, frozen=True):
    """Everything that is decided before a tensor byte moves."""

    checkpoint: Checkpoint
    draft: Draft
    sources: dict[str, Any]
    plans: dict[str, ItemPlan]
    references: dict[str, Costs]
    """For every item, what its leaves cost that are taken by reference."""
    compact: dict[str, bool]
    reason: str
    looked: list[Look]
    """What was read beyond the metadata, and what it told."""


def prepare(source: str, plan: Plan, options: Options, say: Say = lambda _: None) -> Prepared:
    """Resolve a plan against a checkpoint, from metadata alone; ``say`` is told what user code is imported.

    Raises:
        ContractError: with ``like_init``, that the training script could not restore the result.
        SurgeryError: everything that is wrong, as far as metadata shows.
    """
    checkpoint = open_checkpoint(source, step=options.step, item=options.item)
    if options.as_step is not None and options.as_step < 0:
        raise PlanError(
            f"`--as-step {options.as_step}` is no step",
            why="steps are counted from 0",
            fix="give a number that is not negative",
        )
    if options.as_step is not None and checkpoint.location.shape != "root":
        raise PlanError(
            f"'{source}' has no step to rename",
            why="`--as-step` gives the step inside a root another number; this is no root",
            fix="name the destination as the step is to be called",
        )
    opened: dict[str, Any] = {}

    def open_by_path(text: str) -> Checkpoint | ArrayFile:
        if text not in opened:
            opened[text] = open_source(text)
        return opened[text]  # type: ignore[no-any-return]

    script = None
    if options.like_init is not None:
        script = read_script(options.like_init, say=say, device=options.device)
    surveyed, looked = (
        survey_state(checkpoint, plan, options.params, script) if plan.edits else (None, [])
    )

    def drafted(plan: Plan) -> Draft:
        return resolve(
            plan,
            checkpoint,
            open_by_path,
            seed=options.seed,
            optimizer=options.optimizer,
            params=options.params,
            items=draft_items(checkpoint),
            surveyed=surveyed,
        )

    draft = drafted(plan)
    looked += look_at_restarts(checkpoint, draft)
    if script is not None:
        check_draft(script, draft, plan, checkpoint, drafted)
    sources: dict[str, Any] = {SOURCE: checkpoint}
    for name in draft.fingerprints:
        if name != SOURCE:
            sources[name] = open_by_path(plan.sources.get(name, name))
    plans = plan_items(checkpoint, draft, sources)
    references = {name: costs_of_references(item) for name, item in plans.items()}
    choices = {
        name: is_compact(item, references[name], options.compact) for name, item in plans.items()
    }
    reason = next((text for chosen, text in choices.values() if chosen), "") or next(
        (text for _, text in choices.values() if text), "the format is one file, written anew"
    )
    compact = {name: chosen for name, (chosen, _) in choices.items()}
    check_memory(plans, options.memory_bytes, options.device)
    return Prepared(checkpoint, draft, sources, plans, references, compact, reason, looked)


def open_source(text: str) -> Checkpoint | ArrayFile:
    """A donor by its path: an array file by its suffix, else a checkpoint.

    Raises:
        CheckpointError: it is neither, or cannot be read.
        PlanError: nothing stands there.
    """
    path = Path(text).expanduser()
    if path.suffix in ARRAY_SUFFIXES and path.is_file():
        return ArrayFile(text)
    return open_checkpoint(text)


def preview(
    source: str, plan: Plan, destination: str | None, options: Options, say: Say = lambda _: None
) -> reports.Preview:
    """What ``apply`` would do; with a destination, whether it can be used."""
    plan = _effective(plan, options)
    prepared = prepare(source, plan, options, say)
    if destination is not None:
        _check_destination(Path(destination), prepared, force=options.force)
        _check_space(prepared, Path(destination), options)
    return reports.Preview(**_preview_fields(prepared, plan, destination, options))


def apply(
    source: str,
    destination: str,
    plan: Plan,
    options: Options,
    listener: Listener | None,
    say: Say = lambda _: None,
) -> reports.Report:
    """Write the new checkpoint; see ``surgery.apply``."""
    from surgery_cli.compute.kits import open_kit

    started = time.monotonic()
    target = Path(destination)
    plan = _effective(plan, options)
    prepared = prepare(source, plan, options, say)
    _check_expected(prepared, options)
    restored = _restore_set_aside(target, prepared, say)
    _check_destination(target, prepared, force=options.force)
    _check_space(prepared, target, options)
    kit = open_kit(options.device, options.mesh)
    linker = Linker(LinkMode(options.link))
    fields = _preview_fields(prepared, plan, destination, options)
    if restored is not None:
        fields["notes"].insert(0, f"restored '{restored}', which an interrupted run had set aside")
    meter = Meter(listener, "writing", _value_bytes(prepared))
    try:
        with Staging(target, force=options.force) as staging:
            writer = StepWriter(
                prepared.checkpoint,
                prepared.plans,
                staging.new,
                linker,
                compact=prepared.compact,
                made=prepared.draft.items.made,
                as_step=options.as_step,
            )
            writer.begin()
            execution = Execution(
                prepared.sources,
                kit,
                memory_bytes=options.memory_bytes,
                meter=meter,
                allow_non_finite=options.allow_non_finite,
            )
            done = execution.run(list(writer.items.values()))
            writer.finish()
            _check_unchanged(prepared)
            written = verify_result(
                staging.new,
                prepared.draft,
                done.digests,
                item=None if prepared.draft.items.made else options.item,
                prefix_items=prepared.draft.items.is_prefixed,
                memory_bytes=options.memory_bytes,
                listener=listener,
            )
            read = execution.read_bytes + sum(look.bytes for look in prepared.looked)
            report = _report(fields, done, read, linker, writer, started)
            write_record(record_path(written), _record(prepared, plan, done, report, written))
            staging.commit()
    except OSError as error:
        raise _write_error(target, error) from error
    except MemoryError as error:
        raise WriteError(
            "there is not enough memory",
            why=str(error) or f"`--memory` allows {options.memory_bytes} bytes in flight",
            fix="lower `--memory`, or run where there is more",
        ) from error
    report.seconds = round(time.monotonic() - started, 3)
    return report


def _check_destination(target: Path, prepared: Prepared, *, force: bool) -> None:
    """Nothing that is read may be written: not the source, and no donor."""
    for source in prepared.sources.values():
        check_destination(target, source.place_on_disk, force=force)


def _restore_set_aside(target: Path, prepared: Prepared, say: Say) -> Path | None:
    """Give back its name to what an interrupted ``--force`` set aside, and say so at once."""
    set_aside = set_aside_of(target)
    sources = [source.place_on_disk.resolve() for source in prepared.sources.values()]
    if set_aside is None or set_aside.resolve() in sources:
        return None
    restored = recover_old(target)
    if restored is not None:
        say(f"restored '{restored}', which an interrupted run had set aside as '{set_aside.name}'")
    return restored


def _check_expected(prepared: Prepared, options: Options) -> None:
    expected = options.expected_draft
    if expected is None or expected == prepared.draft.digest:
        return
    if not same_sources(expected, prepared.draft.digest):
        raise CheckpointError(
            f"'{prepared.checkpoint.location.root}', or a donor, is not what was previewed",
            why=f"the draft was {expected}, and is {prepared.draft.digest} over what is there now",
            fix="run `surgery plan` again and look at what it says",
        )
    raise PlanError(
        f"the draft is not the one that was previewed: {expected}",
        why=f"it is {prepared.draft.digest} now: the plan or the options have changed",
        fix="run `surgery plan` again and look at what it says",
    )


def _check_unchanged(prepared: Prepared) -> None:
    """The source and every donor must be what they were when the draft was made."""
    for source in prepared.sources.values():
        if not source.is_unchanged():
            raise CheckpointError(
                f"'{source.place_on_disk}' changed while it was read",
                why="its metadata or data files are not what they were at the start",
                fix="wait until whatever writes to it has ended, then run the command again",
            )


def _check_space(prepared: Prepared, destination: Path, options: Options) -> None:
    costs = _costs(prepared, options)
    needed = costs["bytes_written"] + costs["bytes_copied"]
    root = prepared.checkpoint.location.root
    if standing_parent(destination).stat().st_dev != root.stat().st_dev:
        needed += costs["bytes_linked"]
    check_space(destination, needed)


def _write_error(target: Path, error: OSError) -> SurgeryError:
    return WriteError(
        f"writing '{target}' failed",
        why=f"{error.strerror or error}" + (f": '{error.filename}'" if error.filename else ""),
        fix="nothing was left behind; mend the cause and run the command again",
    )


def _value_bytes(prepared: Prepared) -> int:
    return sum(leaf.spec.bytes for plan in prepared.plans.values() for leaf in plan.of(Way.ENCODE))


def _costs(prepared: Prepared, options: Options) -> dict[str, int]:
    """Estimates from metadata, in bytes."""
    written = linked = copied = 0
    read = sum(look.bytes for look in prepared.looked)
    for name, plan in prepared.plans.items():
        for leaf in plan.of(Way.ENCODE):
            written += leaf.spec.bytes
            read += read_bytes(leaf.recipe)
        raw = plan.of(Way.RAW)
        if prepared.compact[name]:
            raw = plan.of(Way.KEEP, Way.MOVE, Way.GRAFT, Way.RAW)
        else:
            linked += prepared.references[name].linked_bytes
        raw_bytes = sum(leaf.origin_array.stored_bytes for leaf in raw)
        written += raw_bytes
        read += raw_bytes
    copied += carried_bytes(prepared.checkpoint)
    if options.link == "never":
        linked, copied = 0, copied + linked
    return {
        "bytes_read": read,
        "bytes_written": written,
        "bytes_linked": linked,
        "bytes_copied": copied,
    }


def _preview_fields(
    prepared: Prepared, plan: Plan, destination: str | None, options: Options
) -> dict[str, Any]:
    draft = prepared.draft
    notes = inference_notes(prepared.checkpoint)
    notes += [look.sentence for look in prepared.looked] + list(draft.notes)
    notes += dropped_item_notes(prepared.checkpoint, draft)
    notes += memory_notes(prepared.plans, options.memory_bytes, options.device)
    removed = [str(path) for path in draft.removed]
    notes += [
        f"'{item.directory.name}': {item.layout} is only read; the result is an Orbax directory"
        f" ({CONVERTED_LAYOUT}, as `PyTreeCheckpointer` writes it)"
        for item in (item_plan.item for item_plan in prepared.plans.values())
        if is_converted(item)
    ]
    shares_files = any(
        item_plan.item.layout.startswith("ocdbt") for item_plan in prepared.plans.values()
    )
    if removed and shares_files and not any(prepared.compact.values()):
        notes.append(
            "removed values may remain in linked data files; `--compact always` leaves them out"
        )
    if destination is not None:
        notes += leftover_notes(Path(destination))
    return {
        "source": str(prepared.checkpoint.location.root),
        "destination": destination,
        "draft": draft.digest,
        "strategy": "compact" if any(prepared.compact.values()) else "copy-on-write",
        "strategy_reason": prepared.reason,
        "edits": edit_lines(draft, plan),
        "leaves": [changed_leaf(draft, path) for path in draft.changed],
        "removed": removed,
        "by_reference": sum(
            leaf.way in (Way.KEEP, Way.MOVE, Way.GRAFT)
            for item in prepared.plans.values()
            for leaf in item.leaves
        ),
        "notes": notes,
        "chosen": prepared.checkpoint.location.chosen,
        **_costs(prepared, options),
    }


def edit_lines(draft: Draft, plan: Plan) -> list[reports.EditLine]:
    """One line per edit: how many leaves it names, and what becomes of their twins."""
    lines = []
    for number, edit in enumerate(plan.edits):
        outcome = draft.outcomes[number]
        lines.append(
            reports.EditLine(
                operation=edit.name,
                summary=edit.summary,
                leaves=outcome.leaves,
                twins=outcome.twins,
                bytes=outcome.bytes,
            )
        )
    return lines


def changed_leaf(draft: Draft, path: LeafPath) -> reports.ChangedLeaf:
    """An output leaf with what it is made of."""
    recipe = draft.leaves[path]
    origin = recipe.origin
    before = None
    where = None
    if origin is not None:
        where = f"{origin.source}:{origin.path}" if origin.source != SOURCE else str(origin.path)
    was = origin.path if origin is not None and origin.source == SOURCE else path
    if was in draft.source_tree:
        before = draft.source_tree[was].type_text
    slot = draft.slots.get(path)
    return reports.ChangedLeaf(
        path=str(path),
        from_=where,
        operations=[step.operation.name for step in recipe.steps],
        before=before,
        after=recipe.spec.type_text,
        policy=recipe.policy or None,
        twin_of=str(slot.param) if slot else None,
        moved=origin is not None and (origin.source != SOURCE or origin.path != path),
    )


def _report(
    fields: Mapping[str, Any],
    done: Executed,
    read_bytes: int,
    linker: Linker,
    writer: StepWriter,
    started: float,
) -> reports.Report:
    digests = {str(path): digest.digest for path, digest in done.digests.items()}
    for leaf in fields["leaves"]:
        leaf.digest = digests.get(leaf.path)
    counted = {
        "bytes_read": read_bytes + sum(item.raw_bytes for item in writer.items.values()),
        "bytes_written": done.written_bytes + sum(item.raw_bytes for item in writer.items.values()),
        "bytes_linked": linker.carried.linked_bytes,
        "bytes_copied": linker.carried.copied_bytes,
    }
    return reports.Report(
        **{**fields, **counted},
        verified=True,
        digests=digests,
        seconds=round(time.monotonic() - started, 3),
        shared_files=linker.carried.shared_files,
        checked=len(done.digests),
    )


def _record(
    prepared: Prepared, plan: Plan, done: Executed, report: reports.Report, written: Checkpoint
) -> Record:
    """What ``surgery.json`` says of this run; the source's own record goes into the history."""
    old = read_record(prepared.checkpoint)
    draft = prepared.draft
    history = [*old.history, msgspec.to_builtins(old) | {"history": []}] if old else []
    return new_record(
        source=str(prepared.checkpoint.location.root),
        source_fingerprint=prepared.checkpoint.fingerprint,
        donors={name: mark for name, mark in draft.fingerprints.items() if name != SOURCE},
        draft=draft.digest,
        plan=plan.document(),
        leaves=[reports.as_builtins(leaf) for leaf in report.leaves],
        removed=report.removed,
        verified={"structure": len(draft.leaves), "read_back": report.checked},
        digests=digests_after(prepared.checkpoint, written, draft, done.digests),
        history=history,
    )
