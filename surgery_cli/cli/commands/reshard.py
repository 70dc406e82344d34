"""The command `reshard`."""

from __future__ import annotations

import msgspec

from surgery_cli.cli.commands.apply import run_plan
from surgery_cli.cli.rendering.spelling import in_options, said_in_options
from surgery_cli.console.arguments import Destination, Output, Source
from surgery_cli.console.formats.files import HtmlTo, failures_written, output_files
from surgery_cli.settings.reshard import Reshard
from surgery_cli.settings.run import Options, WritingOptions
from surgery_cli.settings.shared import DryRun


def reshard(
    source: Source,
    destination: Destination,
    *,
    dry_run: DryRun = False,
    layout: Reshard,
    options: WritingOptions,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Lay a checkpoint out for another topology: its stored chunks, and what says how arrays are sharded.

    No value changes, and no device is needed. Each leaf is stored in the parts that the devices of `--mesh` hold, as
    `--spec` splits them, so that no host reads what another one needs; twins in the optimizer state follow their
    params, and leaves that no spec names are replicated. Leaves that are stored so already are linked. `--like` takes
    the layout of another checkpoint; `--like-init` without one of these the shardings of your script's state.
    """
    from surgery_cli.planning import plan_of

    is_stated = layout != Reshard()
    if not is_stated and options.like_init is not None:
        layout = Reshard(like_init=options.like_init)
    run = Options(**msgspec.structs.asdict(options))
    files = output_files((), html, "reshard", source, destination)
    with failures_written(files), said_in_options(Reshard):
        return run_plan(
            source,
            destination,
            lambda: plan_of([], reshard=layout),
            run,
            output,
            dry_run=dry_run,
            files=files,
            reworded=lambda text: in_options(text, Reshard),
        )
