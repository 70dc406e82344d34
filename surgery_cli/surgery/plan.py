"""Plan: from a checkpoint and a plan to a preview of what `apply` would do."""

from __future__ import annotations

from surgery_cli import reports
from surgery_cli.hosts.options import refuse_strays
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning import Plan
from surgery_cli.script.user_code import Say, importing_once
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.filesystem.request_counts import requests_before_run
from surgery_cli.store.write.aftermath import begin_anew
from surgery_cli.surgery.config_notes import config_notes
from surgery_cli.surgery.expected_draft import check_expected
from surgery_cli.surgery.exporting import check_called
from surgery_cli.surgery.finished import finished_before
from surgery_cli.surgery.gate import check_probe
from surgery_cli.surgery.host_shares import shares_note
from surgery_cli.surgery.preparation import effective, prepare
from surgery_cli.surgery.previews import preview_notes, previewed
from surgery_cli.surgery.record_beside import stale_notes, stale_record
from surgery_cli.surgery.resumption import resumption_of
from surgery_cli.surgery.same_run import check_new_step, into_run
from surgery_cli.surgery.source_and_destination import check_target, path_of
from surgery_cli.surgery.space import check_space
from surgery_cli.surgery.step_metrics import with_metrics_or_not
from surgery_cli.surgery.traffic import costs
from surgery_cli.surgery.undo_order import undone_out_of_order
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage


@importing_once()
def plan(
    source: str,
    plan: Plan,
    *,
    destination: str | None = None,
    options: Options = Options(),
    say: Say = lambda _: None,
) -> reports.Preview:
    """What ``apply`` would do; writes nothing. With a ``destination``, checks that it can be used.

    ``say`` is told what code of the user's is about to be imported (``options.like_init``).

    Raises:
        SurgeryError: everything that is wrong, as far as metadata shows.
    """
    before = requests_before_run()
    begin_anew()
    taken = None
    if destination is not None:
        source, destination, options, taken = into_run(source, destination, options)
    target = None if destination is None else path_of(destination)
    plan = effective(plan, options)
    check_probe(options)
    refuse_strays(options)
    with reading(path_at(source)):
        prepared = prepare(source, plan, options, say)
    check_expected(prepared, options)
    stale = None
    if target is not None:
        check_called(target, plan)
        done = finished_before(target, prepared, plan, options, taken)
        if done is not None:
            return done
        with reading(target, is_destination=True):
            prepared = with_metrics_or_not(target, prepared, options)
            resumed = resumption_of(target, prepared, plan, options)
            check_target(target, prepared, force=options.force, built=resumed.built)
            stale = stale_record(target, prepared, built=resumed.built, resumes=options.resume)
            check_new_step(target, prepared)
    with reading(path_at(source)):
        estimate = costs(prepared, options, target, before)
    if target is not None:
        check_space(target, estimate.bytes_written + estimate.bytes_copied, prepared, options)
    notes = preview_notes(prepared, destination, options)
    notes += config_notes(prepared.checkpoint, plan)
    notes += [*undone_out_of_order(prepared.checkpoint, plan), *stale_notes(stale)]
    if options.probe is not None:
        said = f"the probe of {options.probe} runs on the result, once that is written"
        notes.append(Remark(DocsPage.PROBE_BEFORE_COMMIT, said))
    if options.processes is not None:
        notes.append(shares_note(prepared, options.processes))
    return previewed(prepared, plan, destination, estimate, notes)
