"""The new checkpoint in its staging directory: written, verified, probed, and put on record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from surgery_cli import reports
from surgery_cli.draft.recipe import SOURCE
from surgery_cli.engine.checks import refuse_breaches
from surgery_cli.engine.executed import Executed
from surgery_cli.engine.execution import Execution
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import CheckpointError, ServiceFails, SurgeryError, WriteError
from surgery_cli.proof.record_places import new_record_path, record_key
from surgery_cli.proof.records import digests_after, write_record
from surgery_cli.proof.result import verify_result
from surgery_cli.proof.surgery_json import Record
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.modes import follow_modes
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.bucket_staging import BucketStaging
from surgery_cli.store.write.commit_marks import commit_marks
from surgery_cli.store.write.journal import Journal, Lost, Placed, withdrawing
from surgery_cli.store.write.staging import Staging, remove
from surgery_cli.store.write.step import StepWriter
from surgery_cli.surgery.gate import Passed
from surgery_cli.surgery.item_of_result import item_of_result
from surgery_cli.surgery.judged_checks import judged_checks, warnings_said
from surgery_cli.surgery.leaf_names import document_names
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.result_record import record_of
from surgery_cli.surgery.run import (
    Run,
    execution_of,
    shared_execution_of,
    shared_step_writer,
    step_writer,
)
from surgery_cli.surgery.source_and_destination import check_unchanged, look_anew
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage


def write(run: Run, staging: Staging | BucketStaging, listener: Listener | None) -> reports.Report:
    """Write the result into its staging place and prove it; it may appear then.

    Raises:
        SurgeryError: it is not what the draft says, a source has changed meanwhile, or the gate does not let it pass.
    """
    prepared, options, draft = run.prepared, run.options, run.prepared.draft
    journal, company = staging.journal, run.company
    writer, execution, done = _made(run, staging, listener)
    if writer.is_all_read:
        look_anew(prepared)
    writer.finish()
    if not writer.is_all_read:
        look_anew(prepared)
    findings = execution.checks.findings()
    refuse_breaches(findings)
    sources_checked = execution.check_sources()
    own = done if company is None else execution.executed
    written = _proved(run, writer, own, staging, listener)
    probed = run.gate.check(written) if run.gate is not None else None
    read = execution.read_bytes + (0 if company is None else company.read_bytes)
    report = _report(run, writer, done, read, sources_checked, probed)
    report = replace(report, checks=judged_checks(draft, findings) or UNSET)
    if warned := warnings_said(draft.checks, findings):
        notes, consequences = [*report.notes, *warned], [*report.consequences, *warned]
        report = replace(report, notes=notes, consequences=consequences)
    if journal is not None and journal.lost is not None:
        said = f"begun anew, as of what an earlier run had kept something was lost: {journal.lost.what}"
        report = replace(report, notes=[*report.notes, Remark(DocsPage.RESUME, said)])
    digests = {record_key(written, path): digest for path, digest in done.digests.items()}
    if not prepared.is_export:  # there, every leaf is written, and nothing comes along
        digests = digests_after(prepared.checkpoint, written, draft, done.digests, run.recorded)
    record = record_of(run, digests, report, written, probed)
    if options.seal:
        marks = dict.fromkeys(commit_marks(writer.new, run.linker), staging.mark_content)
        report, record = _sealed(run, written, record, report, list(done.digests), listener, marks)
    place = new_record_path(written)
    write_record(place, record)
    _follow_modes(prepared, writer, place)
    staging.look_at_lock()
    run.linker.check_standing(writer.new)
    return report


def _made(
    run: Run, staging: Staging | BucketStaging, listener: Listener | None
) -> tuple[StepWriter, Execution, Executed]:
    """Everything but the small files in its place: by reference, or computed, by this process or several."""
    if run.company is None:
        writer = _placed(run, staging)
        execution = execution_of(run, listener, staging.journal)
        with writer.abandoned_on_failure():
            return writer, execution, execution.run(list(writer.items.values()))
    shared, share = shared_step_writer(run, staging.new), shared_execution_of(run, listener)
    shared.begin()
    run.company.place(staging.new)
    return shared, share, run.company.execute(share, shared)


def _placed(run: Run, staging: Staging | BucketStaging) -> StepWriter:
    """What builds the result, and has put in its place what is not computed; an earlier run perhaps did that."""
    journal = staging.journal
    writer = step_writer(run, staging.new, buffered=journal is None)
    if journal is None:
        writer.begin()
        return writer
    if journal.placed is not None:
        try:
            writer.go_on(journal.placed)
        except ServiceFails:
            raise
        except (CheckpointError, WriteError) as error:
            _begin_again(run, staging.new, journal, error)
            writer = step_writer(run, staging.new, buffered=False)
        else:
            return writer
    writer.begin()
    staging.begun(writer.placed)
    return writer


def _begin_again(run: Run, new: Path, journal: Journal, lost: SurgeryError) -> None:
    """Of what an earlier run has kept, something is gone: all of it goes."""
    problem = lost.problems[0]
    journal.note(Lost(", ".join(filter(None, (problem.what, problem.why)))))
    remove(new)
    Placed(0, 0, (), (), (), {}).tell(run.linker, new)


def _proved(
    run: Run,
    writer: StepWriter,
    done: Executed,
    staging: Staging | BucketStaging,
    listener: Listener | None,
) -> Checkpoint:
    """What was written, as opened, held against the draft; and the sources against what they were."""
    draft, company, journal = run.prepared.draft, run.company, staging.journal
    with withdrawing(journal, SurgeryError):
        check_unchanged(run.prepared, as_seen=True)
    if company is not None:
        company.merged()
    staging.is_built()
    item = item_of_result(run.prepared, run.options.item)
    with withdrawing(journal, WriteError):
        try:
            written = verify_result(
                writer.new,
                draft,
                done,
                run.prepared.plans,
                item=item,
                prefix_items=draft.items.is_prefixed,
                memory_bytes=run.memory_bytes,
                listener=listener,
                before=writer.read_before,
                vouching=writer.vouching,
            )
        except WriteError:
            with withdrawing(
                journal, SurgeryError
            ):  # what was taken over is held against the sources
                check_unchanged(run.prepared)
            run.linker.check_standing(writer.new)
            raise
    if company is not None:
        company.wait_until_read_back()
    return written


def _sealed(
    run: Run,
    written: Checkpoint,
    record: Record,
    report: reports.Report,
    read_back: list[LeafPath],
    listener: Listener | None,
    marks: Mapping[Path, bytes],
) -> tuple[reports.Report, Record]:
    """Report and record of a result with all of its leaves and files on record."""
    from surgery_cli.surgery.seal import seal_written

    record, count = seal_written(
        run.prepared,
        written,
        record,
        read_back,
        run.memory_bytes,
        listener,
        to_come=marks,
    )
    read, files = report.bytes_read + count, len(record.files)
    return replace(report, bytes_read=read, bytes_read_to_seal=count, sealed_files=files), record


def _report(
    run: Run,
    writer: StepWriter,
    done: Executed,
    values_read: int,
    sources_checked: int,
    probed: Passed | None,
) -> reports.Report:
    """What was done, in the place of what would be."""
    preview, linker = run.preview, run.linker
    assert preview is not None
    names = document_names(run.prepared.draft.texts)
    digests = {names[path]: digest.digest for path, digest in done.digests.items()}
    raw_bytes = sum(item.raw_bytes for item in writer.items.values())
    raw_bytes += 0 if run.company is None else run.company.raw_bytes
    looked_at = sum(look.bytes for look in run.prepared.looked)
    # some links were only needed while references were copied
    kept = (path for path in linker.carried.shared if filesystem.exists(path))
    shared = sorted(str(path.relative_to(writer.new)) for path in kept)
    return reports.Report.of(
        preview,
        notes=[
            *preview.notes,
            *([Remark(DocsPage.PROBE_BEFORE_COMMIT, probed.note)] if probed else []),
        ],
        leaves=[replace(leaf, digest=digests.get(leaf.path)) for leaf in preview.leaves],
        bytes_read=values_read + looked_at + (probed.bytes_read if probed else 0) + raw_bytes,
        bytes_written=done.written_bytes + raw_bytes,
        bytes_linked=linker.carried.linked_bytes,
        bytes_copied=linker.carried.copied_bytes,
        taken_up_bytes=done.taken_up_bytes,
        verified=True,
        digests=digests,
        seconds=0.0,
        shared_files=len(shared),
        shared=shared,
        checked=len(done.digests) + len(done.parts),
        sources_checked=sources_checked,
    )


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
