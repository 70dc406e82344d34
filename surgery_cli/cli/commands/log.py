"""The command `log`."""

from __future__ import annotations

from typing import Annotated

from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.printing import print_assumed, print_document, print_json, print_text
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import Item, Step


def log(
    checkpoint: Checkpoint,
    *,
    plan: Annotated[
        int | None,
        setting("Print the plan of run N alone, for `apply`.", Group.SHOW, "N"),
    ] = None,
    step: Step = None,
    item: Item = None,
    output: Output,
) -> int:
    """Show what was done to a checkpoint, from what, when and by which plan, the latest run first.

    Every result carries the records of the runs before it (`surgery.json`): they alone are read, and no tensor is.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import history
    from surgery_cli.planning import yaml_of

    found = surgery.log(checkpoint, step=step, item=item)
    if plan is None:
        print_document(found, output, history.render)
        return 0
    document = surgery.recorded_plan(found, plan)
    if output.json:
        print_json(document)
    else:
        print_text(yaml_of(document))
        print_assumed(found, output)
    return 0
