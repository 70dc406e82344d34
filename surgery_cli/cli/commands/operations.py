"""The commands `operations` and `schema`: what plans may say."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from surgery_cli.cli.options.completion import complete_operation
from surgery_cli.console.printing import print_json
from surgery_cli.settings.declaration import Group, setting


def operations(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="One operation, with all its fields.",
            autocompletion=complete_operation,
        ),
    ] = None,
    *,
    json: Annotated[bool, setting("Print one JSON document.", Group.OUTPUT)] = False,
) -> int:
    """List the operations, or the fields and an example of one."""
    from surgery_cli.cli.rendering import operations
    from surgery_cli.console.page import page_on
    from surgery_cli.document import OperationList

    described = operations.described(name)
    if json:
        print_json(OperationList(operations=described))
    else:
        operations.render(described, page_on(sys.stdout), is_whole=name is not None)
    return 0


def schema() -> int:
    """Print the JSON Schema of the plan file, for editors."""
    from surgery_cli import planning

    print_json(planning.schema())
    return 0
