"""The command `check`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from surgery_cli.console.arguments import Checkpoint, Output, complete_checkpoint
from surgery_cli.console.formats.files import (
    HtmlTo,
    OutputTo,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.printing import print_report, progress, saying
from surgery_cli.inputs.addresses import Address, address
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import MEMORY_BYTES, Item, Memory, Params, Step, Variables

_Policy = Annotated[
    Address,
    typer.Argument(
        parser=address,
        autocompletion=complete_checkpoint,
        metavar="POLICY",
        help="The rules: .yaml, .toml or .json; `-` is standard input.",
        show_default=False,
    ),
]


def check(
    checkpoint: Checkpoint,
    policy: _Policy,
    *,
    set: Variables = None,
    step: Step = None,
    item: Item = None,
    params: Params = None,
    memory_bytes: Memory = MEMORY_BYTES,
    output_to: OutputTo = (),
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Hold a checkpoint against the rules of a policy; exit code 1 if one is broken that is an error.

    Rules that metadata decide read no tensor; all others together read every leaf once, if `--memory` allows it.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import checks
    from surgery_cli.planning import read_policy
    from surgery_cli.store.filesystem.small_files import read_anew

    files = output_files(output_to, html, "check", checkpoint, policy)
    with failures_written(files), progress(output) as listener:
        rules = read_policy(policy, settings=set or {}, content=read_anew)
        found = surgery.check(
            checkpoint,
            rules,
            policy=policy,
            options=Options(step=step, item=item, params=params, memory_bytes=memory_bytes),
            listener=listener,
            say=saying(output),
        )
    render = partial(checks.render, verbose=output.verbose)
    write_files(found, files, render)
    print_report(found, output, render, is_good=found.holds)
    return 0 if found.holds else 1
