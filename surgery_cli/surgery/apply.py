"""Apply: from a checkpoint and a plan to a new checkpoint, verified before it appears."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from surgery_cli import reports
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.execution import Executed, Execution
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import (
    SurgeryError,
    WriteError,
)
from surgery_cli.plan import Plan
from surgery_cli.proof.records import (
    digests_after,
    history_after,
    record_path,
    recorded_in,
    write_record,
)
from surgery_cli.proof.result import verify_result
from surgery_cli.proof.sealed_files import check_sealed_files
from surgery_cli.proof.surgery_json import Record, Verified, new_record
from surgery_cli.script.user_code import Say, importing_once
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker, LinkMode
from surgery_cli.store.filesystem.listing import reading, unreadable
from surgery_cli.store.filesystem.modes import follow_modes
from surgery_cli.store.filesystem.write_failures import write_failed
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.item_plan import Way
from surgery_cli.store.write.leftovers import remove_dead
from surgery_cli.store.write.staging import Staging, remaining_notes
from surgery_cli.store.write.step import StepWriter
from surgery_cli.surgery.expected_draft import check_expected
from surgery_cli.surgery.gate import OpenGate, check_probe
from surgery_cli.surgery.leaf_names import document_names
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.surgery.preparation import Prepared, effective, prepare
from surgery_cli.surgery.previews import costs, preview_notes, previewed
from surgery_cli.surgery.seal import seal_written
from surgery_cli.surgery.source_and_destination import (
    check_target,
    check_there,
    check_unchanged,
    path_of,
    restore_set_aside,
    with_aftermath,
)
from surgery_cli.surgery.space import check_space
from surgery_cli.surgery.state_kinds import settled_after
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.quantities import byte_text


@importing_once()
def apply(
    source: str,
    destination: str,
    plan: Plan,
    *,
    options: Options = Options(),
    listener: Listener | None = None,
    say: Say = lambda _: None,
    open_gate: OpenGate,
) -> reports.Report:
    """See ``surgery.apply``; ``open_gate`` opens what the result must pass before it appears, where one is asked for.

    Raises:
        SurgeryError: what ``preview`` raises, and what only values or the disk show; nothing was written then.
    """
    from surgery_cli.compute.kits import open_kit

    started = time.monotonic()
    target = path_of(destination)
    plan = effective(plan, options)
    check_probe(options)
    with reading(Path(source)):
        prepared = prepare(source, plan, options, say)
    check_expected(prepared, options)
    restored = restore_set_aside(target, prepared, say)
    check_target(target, prepared, force=options.force)
    with reading(Path(source)):
        estimate = costs(prepared, options, target)
    check_space(target, estimate.bytes_written + estimate.bytes_copied, prepared.plans)
    kit = open_kit(options.device, options.mesh)
    above = msgspec.structs.replace(options, seed=plan.seed, params=plan.params)
    gate = None if options.probe is None else open_gate(prepared.checkpoint, above, say)
    linker = Linker(LinkMode(options.link), prepared.boundary)
    removed = remove_dead(target) if options.force else []
    notes = preview_notes(prepared, destination, options)
    notes += [Consequence(f"removed '{path}', which a killed run had left") for path in removed]
    if restored is not None:
        said = f"restored '{restored}', which an interrupted run had set aside"
        notes.insert(0, Remark(said))  # a consequence that was said when it was done
    meter = Meter(listener, "writing", _value_bytes(prepared))
    memory_bytes = bytes_to_use(options.memory_bytes)
    recorded = recorded_in(prepared.sources)
    check_sealed_files(prepared.checkpoint)
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
                memory_bytes=memory_bytes,
                meter=meter,
                allow_non_finite=options.allow_non_finite,
                recorded=recorded,
            )
            done = execution.run(list(writer.items.values()))
            writer.finish()
            sources_checked = execution.check_sources()
            check_unchanged(prepared)
            written = verify_result(
                staging.new,
                prepared.draft,
                done.digests,
                prepared.plans,
                item=None if prepared.draft.items.made else options.item,
                prefix_items=prepared.draft.items.is_prefixed,
                memory_bytes=memory_bytes,
                listener=listener,
                before=writer.read_before,
            )
            probed = gate.check(written) if gate is not None else None
            if probed is not None:
                notes.append(Remark(probed.note))
            report = _report(
                previewed(prepared, plan, destination, estimate, notes),
                bytes_read=execution.read_bytes
                + sum(look.bytes for look in prepared.looked)
                + (probed.bytes_read if probed is not None else 0),
                done=done,
                linker=linker,
                writer=writer,
                digests=_digest_texts(prepared.draft, done),
                sources_checked=sources_checked,
            )
            digests = digests_after(
                prepared.checkpoint, written, prepared.draft, done.digests, recorded
            )
            record = _record(
                prepared, plan, digests, report, written, probed.note if probed is not None else ""
            )
            if options.seal:
                record, count = seal_written(
                    prepared.checkpoint, written, record, list(done.digests), listener
                )
                report = replace(
                    report, bytes_read=report.bytes_read + count, sealed_files=len(record.files)
                )
            write_record(record_path(written), record)
            _follow_modes(prepared, writer, record_path(written))
            staging.commit()
    except (OSError, SurgeryError) as error:
        # what is gone may have been taken for damage, or a chunk of it for zeros
        check_there(prepared)
        if isinstance(error, OSError):
            raise with_aftermath(_of_system(error, target, prepared)) from error
        with_aftermath(error)
        raise
    except MemoryError as error:
        refusal = WriteError(
            "there is not enough memory",
            why=str(error) or f"up to {byte_text(memory_bytes)} were in flight",
            fix="lower `--memory`, or run where there is more",
        )
        raise with_aftermath(refusal) from error
    return replace(
        report,
        notes=[*report.notes, *remaining_notes()],
        consequences=[*report.consequences, *remaining_notes()],
        seconds=round(time.monotonic() - started, 3),
    )


def _of_system(error: OSError, target: Path, prepared: Prepared) -> SurgeryError:
    """What the system refused: to give a file that is read, or to take what is written."""
    file = Path(os.fsdecode(error.filename)) if error.filename else None
    if file is not None and prepared.boundary.holds(file):
        return unreadable(file, error)
    return write_failed(str(target), error)


def _follow_modes(prepared: Prepared, writer: StepWriter, record: Path) -> None:
    """Who may not read the source, or a donor, may not read the result and its record either."""
    follow_modes(
        writer.new,
        prepared.checkpoint.location.root,
        renamed=writer.renamed,
        donors=[
            opened.place_on_disk for name, opened in prepared.sources.items() if name != SOURCE
        ],
        beside=[] if record.is_relative_to(writer.new) else [record],
    )


def _value_bytes(prepared: Prepared) -> int:
    return sum(leaf.spec.bytes for plan in prepared.plans.values() for leaf in plan.of(Way.ENCODE))


def _report(
    preview: reports.Preview,
    *,
    done: Executed,
    bytes_read: int,
    sources_checked: int,
    digests: Mapping[str, str],
    linker: Linker,
    writer: StepWriter,
) -> reports.Report:
    """What was done, in the place of what would be."""
    raw_bytes = sum(item.raw_bytes for item in writer.items.values())
    # some links were only needed while references were copied
    kept = (path for path in linker.carried.shared if filesystem.exists(path))
    shared = sorted(str(path.relative_to(writer.new)) for path in kept)
    return reports.Report.of(
        preview,
        leaves=[replace(leaf, digest=digests.get(leaf.path)) for leaf in preview.leaves],
        bytes_read=bytes_read + raw_bytes,
        bytes_written=done.written_bytes + raw_bytes,
        bytes_linked=linker.carried.linked_bytes,
        bytes_copied=linker.carried.copied_bytes,
        verified=True,
        digests=dict(digests),
        seconds=0.0,
        shared_files=len(shared),
        shared=shared,
        checked=len(done.digests),
        sources_checked=sources_checked,
    )


def _digest_texts(draft: Draft, done: Executed) -> dict[str, str]:
    names = document_names(draft.texts)
    return {names[path]: digest.digest for path, digest in done.digests.items()}


def _record(
    prepared: Prepared,
    plan: Plan,
    digests: Mapping[str, LeafDigest],
    report: reports.Report,
    written: Checkpoint,
    probed: str,
) -> Record:
    """What ``surgery.json`` says of this run; the source's own record goes into the history."""
    draft = prepared.draft
    return new_record(
        source=str(prepared.checkpoint.location.root),
        source_fingerprint=prepared.checkpoint.fingerprint,
        donors={name: mark for name, mark in draft.fingerprints.items() if name != SOURCE},
        draft=draft.digest,
        plan=plan.document(),
        leaves=report.leaves,
        removed=report.removed,
        notes=list(map(str, draft.notes)),
        assumptions=report.assumptions,
        slots=settled_after(prepared.checkpoint, written, draft),
        verified=Verified(
            structure=len(draft.leaves),
            read_back=report.checked,
            sources_checked=report.sources_checked,
            probe=probed or UNSET,
        ),
        digests=dict(digests),
        history=history_after(prepared.checkpoint, digests),
    )
