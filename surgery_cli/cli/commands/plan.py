"""The command `plan`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from surgery_cli.console.arguments import Output, PlanFile, Source
from surgery_cli.console.printing import print_document, saying
from surgery_cli.inputs.addresses import written_address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import Variables


def plan(
    source: Source,
    plan: PlanFile,
    *,
    set: Variables = None,
    destination: Annotated[
        str | None,
        setting(
            "Check, too, that DST can be written.",
            Group.WRITE,
            "DST",
            written_address,
            option="--to",
        ),
    ] = None,
    options: Options,
    output: Output,
) -> int:
    """Show what `apply` would do; nothing is written and no tensor is read.

    It takes the options of `apply`, so that one can stand in for the other.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import preview
    from surgery_cli.plan import read_plan

    read = read_plan(plan, settings=set or {})
    found = surgery.plan(source, read, destination=destination, options=options, say=saying(output))
    print_document(found, output, partial(preview.render, verbose=output.verbose))
    return 0
