"""The command `probe`: the user's model on a checkpoint, looked into."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.printing import print_report
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
    output: Output,
) -> int:
    """Run a model on a checkpoint and look inside; exit code 1 on NaN or a difference.

    A row for each module call, in the order in which calls finish. FILE.py is imported, and nothing else of yours.
    """
    from surgery_cli.probing.command import rendering

    found = run_probe(checkpoint, model=model, inputs=inputs, options=options, say=_say)
    print_report(found, output, partial(rendering.render, verbose=output.verbose))
    return 0 if found.is_sound else 1


def _say(line: str) -> None:
    # Before anything else happens: a script without a guard would begin to train here
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
