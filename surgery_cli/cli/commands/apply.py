"""The command `apply`, and what every command does that writes a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from surgery_cli.console.arguments import Destination, Output, PlanFile, Source
from surgery_cli.console.formats.files import (
    HtmlTo,
    OutputFile,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.many_hosts import joined
from surgery_cli.console.printing import print_document, print_report, progress, saying
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import DryRun, Variables

if TYPE_CHECKING:
    from surgery_cli.planning import Plan
    from surgery_cli.reports import Preview

Said = TypeVar("Said", bound="Preview")


def apply(
    source: Source,
    destination: Destination,
    plan: PlanFile,
    *,
    set: Variables = None,
    dry_run: DryRun = False,
    options: Options,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Write a new checkpoint: the source with a plan applied, verified before it appears."""

    def read() -> Plan:
        from surgery_cli.planning import read_plan
        from surgery_cli.store.filesystem.small_files import read_anew

        return read_plan(plan, settings=set or {}, content=read_anew)

    files = output_files((), html, "apply", source, destination, plan)
    with failures_written(files):
        return run_plan(source, destination, read, options, output, dry_run=dry_run, files=files)


def run_plan(
    source: str,
    destination: str,
    plan: Callable[[], Plan],
    options: Options,
    output: Output,
    *,
    dry_run: bool,
    files: Sequence[OutputFile],
    reworded: Callable[[str], str] = str,
) -> int:
    """Apply a plan, or with ``dry_run`` print what that would do; the notes as ``reworded`` puts them.

    The report goes to ``files``, too; of a run on many hosts that of the first process.

    ``plan`` makes it, once the processes of a run on many hosts have met: whatever fails then ends all of them.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import preview

    render = partial(preview.render, verbose=output.verbose)
    if dry_run:
        with progress(output):
            found = surgery.plan(
                source, plan(), destination=destination, options=options, say=saying(output)
            )
        found = _said(found, reworded)
        write_files(found, files, render)
        print_document(found, output, render)
        return 0
    with joined(options, reworded) as membership:
        if membership is not None and not membership.is_first:
            surgery.take_part(source, destination, plan(), options=options, membership=membership)
            return 0
        with progress(output) as listener:
            report = surgery.apply(
                source,
                destination,
                plan(),
                options=options,
                listener=listener,
                say=saying(output),
                membership=membership,
            )
    report = _said(report, reworded)
    try:
        write_files(report, files, render)
    finally:  # the checkpoint is there, and that is said in any case
        print_report(
            report,
            output,
            render,
            consequences=report.consequences,
        )
    return 0


def judge_plan(source: str, plan: Plan, options: Options, output: Output) -> int:
    """See that what a plan states holds, and print that."""
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import judgement

    with progress(output) as listener:
        found = surgery.judge(source, plan, options=options, listener=listener, say=saying(output))
    print_report(found, output, partial(judgement.render, verbose=output.verbose))
    return 0


def _said(document: Said, reworded: Callable[[str], str]) -> Said:
    """The document with its notes as ``reworded`` puts them."""
    return msgspec.structs.replace(
        document,
        notes=[note.saying(reworded(note)) for note in document.notes],
        consequences=[note.saying(reworded(note)) for note in document.consequences],
    )
