"""The command `probe`: the user's model on a checkpoint, looked into."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.formats.files import (
    HtmlTo,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.printable import over_progress
from surgery_cli.console.printing import print_report, progress
from surgery_cli.probing import ProbeOptions
from surgery_cli.probing import probe as run_probe
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import INPUT, OBJECT


def probe(
    checkpoint: Checkpoint,
    *,
    model: Annotated[
        str,
        setting(
            "Your model, as in `train.py:CNN` or `train.py:CNN(features=16)`.", Group.RUN, *OBJECT
        ),
    ],
    inputs: Annotated[
        tuple[str, ...],
        setting(
            "The batch: `float32[8,28,28,1]`, `int32[8,128]<1000`, or a file `batch.npz`; repeatable.",
            Group.RUN,
            *INPUT,
            option="--input",
        ),
    ] = (),
    options: ProbeOptions,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Run a model on a checkpoint and look inside; exit code 1 on NaN or a difference.

    A row for each module call, in the order in which calls finish. FILE.py is imported, and nothing else of yours.
    """
    from surgery_cli.probing.command import rendering

    others = (options.against, options.save, options.plot)
    files = output_files((), html, "probe", checkpoint, *others)
    with failures_written(files), progress(output):
        found = run_probe(checkpoint, model=model, inputs=inputs, options=options, say=_say)
    render = partial(rendering.render, verbose=output.verbose)
    write_files(found, files, render)
    print_report(found, output, render, is_good=found.is_sound)
    return 0 if found.is_sound else 1


def _say(line: str) -> None:
    # Before anything else happens: a script without a guard would begin to train here
    sys.stderr.write(f"{over_progress(sys.stderr)}{line}\n")
    sys.stderr.flush()
