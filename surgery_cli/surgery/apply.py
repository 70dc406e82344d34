"""Apply: from a checkpoint and a plan to a new checkpoint, verified before it appears."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from surgery_cli import reports
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import CheckpointError, SurgeryError, WriteError
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.planning import Plan
from surgery_cli.proof.records import recorded_in
from surgery_cli.proof.sealed_files import check_sealed_files
from surgery_cli.script.user_code import Say, importing_once
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.links import Linker, LinkMode
from surgery_cli.store.filesystem.listing import reading, unreadable
from surgery_cli.store.filesystem.request_counts import (
    Requests,
    requests_before_run,
    requests_so_far,
)
from surgery_cli.store.filesystem.write_failures import is_of_writing, write_failed
from surgery_cli.store.write.aftermath import begin_anew, remaining_notes, with_aftermath
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.bucket_staging import BucketStaging
from surgery_cli.store.write.dead_in_buckets import remove_dead
from surgery_cli.store.write.leftovers import Leftover
from surgery_cli.store.write.resumable_bucket_staging import ResumableBucketStaging
from surgery_cli.store.write.resumable_staging import ResumableStaging
from surgery_cli.store.write.set_aside import what_may_go
from surgery_cli.store.write.staging import Staging
from surgery_cli.surgery.config_notes import config_notes
from surgery_cli.surgery.expected_draft import check_expected
from surgery_cli.surgery.exporting import check_called
from surgery_cli.surgery.finished import finished_before
from surgery_cli.surgery.first_read import begin_to_read
from surgery_cli.surgery.gate import OpenGate, check_probe
from surgery_cli.surgery.kept_inputs import inputs_of, judged_by
from surgery_cli.surgery.many_hosts import Company, be_patient, ending_others_first, refuse_alone
from surgery_cli.surgery.memory import bytes_to_use, memory_notes
from surgery_cli.surgery.preparation import Prepared, effective, prepare
from surgery_cli.surgery.previews import preview_notes, previewed
from surgery_cli.surgery.record_beside import stale_notes, stale_record
from surgery_cli.surgery.resumption import resumption_of
from surgery_cli.surgery.run import Run
from surgery_cli.surgery.same_run import check_new_step, into_run, refuse_another_run
from surgery_cli.surgery.shared_result import write_share
from surgery_cli.surgery.source_and_destination import (
    check_standing,
    check_target,
    path_of,
    restore_set_aside,
)
from surgery_cli.surgery.space import check_space
from surgery_cli.surgery.staged_result import write
from surgery_cli.surgery.step_metrics import with_metrics_or_not
from surgery_cli.surgery.traffic import costs
from surgery_cli.surgery.undo_order import undone_out_of_order
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text

if TYPE_CHECKING:
    from surgery_cli.hosts.membership import Membership


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
    membership: Membership | None = None,
) -> reports.Report:
    """See ``surgery.apply``; ``open_gate`` opens what the result must pass before it appears, where one is asked for.

    ``membership``: of the first process among those of a run on many hosts, the others of which ``take_part``.

    Raises:
        SurgeryError: what ``preview`` raises, and what only values or the disk show; nothing was written then.
    """
    started, before = time.monotonic(), requests_before_run()
    begin_anew()
    source, destination, options, taken = into_run(source, destination, options)
    target = path_of(destination)
    refuse_alone(options, membership)
    be_patient(membership, plan, options)
    prepared, plan, restored = _prepared(source, target, plan, options, say)
    done = finished_before(target, prepared, plan, options, taken)
    if done is not None:
        remove_dead(target, stale=options.stale)
        return _ended(done, started, before)
    run = _ready(prepared, target, destination, plan, options, say, open_gate, before, restored)
    if membership is not None:
        run = replace(run, company=Company.met(membership, run.prepared, plan, target, run.options))
    check_sealed_files(run.prepared.checkpoint)
    try:
        begin_to_read(run)  # while the destination is seen to
        with _staging(target, run) as staging, ending_others_first(run.company):
            report = write(run, staging, listener)
            staging.commit()
    except (OSError, SurgeryError) as error:
        # what is gone may have been taken for damage, or a chunk of it for zeros
        try:
            check_standing(run.prepared, error)
        except CheckpointError as gone:
            raise with_aftermath(gone) from error
        if isinstance(error, OSError):
            raise with_aftermath(_of_system(error, target, run.prepared)) from error
        with_aftermath(error)
        raise
    except MemoryError as error:
        refusal = WriteError(
            "there is not enough memory",
            why=str(error) or f"up to {byte_text(run.memory_bytes)} were in flight",
            fix="lower `--memory`, or run where there is more",
        )
        raise with_aftermath(refusal) from error
    if membership is not None:
        membership.finish()
    return _ended(
        report, started, before, Requests() if run.company is None else run.company.requests
    )


def _ended(
    report: reports.Report, started: float, before: Requests, of_others: Requests = Requests()
) -> reports.Report:
    """The report of a run that is over, with what that took; ``of_others``: what other processes asked for."""
    requests = requests_so_far() - before + of_others
    return replace(
        report,
        requests=requests if requests.total else UNSET,
        minutes=UNSET,
        bytes_per_second=UNSET,
        notes=[*report.notes, *remaining_notes()],
        consequences=[*report.consequences, *remaining_notes()],
        seconds=round(time.monotonic() - started, 3),
    )


@importing_once()
def take_part(
    source: str,
    destination: str,
    plan: Plan,
    *,
    options: Options,
    say: Say = lambda _: None,
    membership: Membership,
) -> None:
    """What every process but the first does of a run on many hosts: its share, from the same draft.

    Raises:
        SurgeryError: what ``apply`` raises.
    """
    be_patient(membership, plan, options)
    source, destination, options, _ = into_run(source, destination, options)
    target = path_of(destination)
    plan = effective(plan, options)
    with reading(path_at(source)):
        prepared = prepare(source, plan, options, say)
    check_expected(prepared, options)
    try:
        company = Company.met(membership, prepared, plan, target, options)
        write_share(replace(_run(prepared, plan, options), company=company))
    except (OSError, SurgeryError) as error:
        try:
            check_standing(prepared, error)
            if isinstance(error, OSError):
                raise _of_system(error, target, prepared) from error
            raise
        except SurgeryError as known:
            membership.fail(known)  # what is left, each of the others says by itself
            with_aftermath(known)
            raise


def _staging(target: Path, run: Run) -> Staging | BucketStaging:
    """Where the result is built: beside its name on a disk, under it in a bucket."""
    head, left, leaves, stood = run.head, run.left, list(run.prepared.draft.leaves), run.stood
    if isinstance(target, BucketPath):
        if head is None:
            are_several = run.options.distributed or run.company is not None
            return BucketStaging(target, run.linker, stood, beside=are_several, stale=run.stale)
        assert not isinstance(left, Leftover)
        return ResumableBucketStaging(target, run.linker, head, leaves, left, stood)
    if head is None:
        return Staging(target, stood, run.stale)
    assert not isinstance(left, BucketLeftover)
    return ResumableStaging(target, head, leaves, left, stood)


def _prepared(
    source: str, target: Path, plan: Plan, options: Options, say: Say
) -> tuple[Prepared, Plan, Path | None]:
    """The draft, the plan as the options have it, and what an interrupted run had set aside, which was restored."""
    plan = effective(plan, options)
    check_probe(options)
    with reading(path_at(source)):
        prepared = prepare(source, plan, options, say)
    check_expected(prepared, options)
    return prepared, plan, restore_set_aside(target, prepared, say)


def _ready(
    prepared: Prepared,
    target: Path,
    destination: str,
    plan: Plan,
    options: Options,
    say: Say,
    open_gate: OpenGate,
    before: Requests,
    restored: Path | None,
) -> Run:
    """Everything that is decided, checked and opened before anything is written."""
    source = prepared.checkpoint.location.root
    check_called(target, plan)
    with reading(source):
        inputs = inputs_of(prepared) | judged_by(prepared, options)
    with reading(target, is_destination=True):
        prepared = with_metrics_or_not(target, prepared, options)
        resumed = resumption_of(target, prepared, plan, options)
        stood = what_may_go(target) if options.force else None  # before anything judges it
        refuse_another_run(target, prepared.checkpoint.location.argument, options)
        check_target(target, prepared, force=options.force, built=resumed.built)
        stale = stale_record(target, prepared, built=resumed.built, resumes=options.resume)
        check_new_step(target, prepared)
    with reading(source):
        estimate = costs(prepared, options, target, before)
        there = resumed.left.bytes if isinstance(resumed.left, Leftover) else 0
        needed = max(estimate.bytes_written + estimate.bytes_copied - there, 0)
        check_space(target, needed, prepared, options)
    above = replace(options, seed=plan.seed, params=plan.params)
    gate = None if options.probe is None else open_gate(prepared.checkpoint, above, say)
    is_to_go = options.force or options.resume
    removed = remove_dead(target, stale=options.stale) if is_to_go else []
    notes = preview_notes(prepared, destination, options)
    notes += config_notes(prepared.checkpoint, plan)
    notes += [*undone_out_of_order(prepared.checkpoint, plan), *stale_notes(stale)]
    for note in memory_notes(prepared.needs, options.memory_bytes):
        say(str(note))  # nothing has been read; the report says it as well
    notes += [
        Consequence(DocsPage.HOW_IT_WRITES, f"removed '{path}', which a killed run had left")
        for path in removed
    ]
    notes += remaining_notes()
    if restored is not None:
        said = f"restored '{restored}', which an interrupted run had set aside"
        notes.insert(
            0, Remark(DocsPage.FORCE, said)
        )  # a consequence that was said when it was done
    preview = previewed(prepared, plan, destination, estimate, notes)
    run = _run(prepared, plan, options)
    return replace(
        run,
        preview=preview,
        inputs=inputs,
        gate=gate,
        head=resumed.head,
        left=resumed.left,
        stood=stood,
        stale=stale,
    )


def _run(prepared: Prepared, plan: Plan, options: Options) -> Run:
    """What every process needs to make values."""
    from surgery_cli.compute.kits import open_kit

    memory_bytes = bytes_to_use(options.memory_bytes)
    return Run(
        prepared=prepared,
        plan=plan,
        options=options,
        kit=open_kit(options.device, options.mesh),
        linker=Linker(LinkMode(options.link), prepared.boundary, memory_bytes),
        memory_bytes=memory_bytes,
        recorded=recorded_in(prepared.sources),
    )


def _of_system(error: OSError, target: Path, prepared: Prepared) -> SurgeryError:
    """What the system refused: to give a file that is read, or to take what is written."""
    file = path_at(os.fsdecode(error.filename)) if error.filename else None
    if file is not None and not is_of_writing(error) and prepared.boundary.holds(file):
        return unreadable(file, error)
    return write_failed(str(target), error)
