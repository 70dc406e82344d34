"""The command `compact`."""

from __future__ import annotations

import msgspec

from surgery_cli.cli.commands.apply import run_plan
from surgery_cli.console.arguments import Destination, Output, Source
from surgery_cli.console.formats.files import HtmlTo, failures_written, output_files
from surgery_cli.errors import PlanError
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import DryRun


def compact(
    source: Source,
    destination: Destination,
    *,
    dry_run: DryRun = False,
    options: Options,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Write a copy without dead bytes: what edits have left in data files, and nothing refers to.

    `inspect` says how many there are. Encoded bytes are copied as they are; no value changes.
    """
    from surgery_cli.planning import plan_of

    if options.compact == "never":
        raise PlanError(
            "`compact` writes a fresh store, and `--compact never` forbids one",
            fix="leave `--compact` out; `surgery apply` takes it",
        )
    options = msgspec.structs.replace(options, compact="always")
    files = output_files((), html, "compact", source, destination)
    with failures_written(files):
        return run_plan(
            source,
            destination,
            lambda: plan_of([]),
            options,
            output,
            dry_run=dry_run,
            files=files,
        )
