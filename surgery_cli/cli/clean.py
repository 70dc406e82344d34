"""The command `clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from surgery_cli.cli.completion import complete_checkpoint
from surgery_cli.cli.option_groups import taking
from surgery_cli.cli.options import DryRun, Output, output
from surgery_cli.cli.printing import print_report
from surgery_cli.inputs.addresses import LocalAddress, local_address


@taking(output=output)
def clean(
    path: Annotated[
        LocalAddress,
        typer.Argument(
            metavar="PATH",
            help="A destination, or the directory in which destinations stand.",
            autocompletion=complete_checkpoint,
            parser=local_address,
            show_default=False,
        ),
    ],
    *,
    stale: Annotated[
        bool,
        typer.Option(
            "--stale", help="Also those of other machines, of which you know that they are over."
        ),
    ] = False,
    dry_run: DryRun = False,
    output: Output,
) -> int:
    """Remove what killed runs of `surgery` left; exit code 1 if something may still be in use.

    A run says in its staging directory which process it is, so that a living one's is never removed.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import cleaning

    found = surgery.clean(path, stale=stale, dry_run=dry_run)
    print_report(found, output, cleaning.render, consequences=found.notes)
    return 1 if found.kept else 0
