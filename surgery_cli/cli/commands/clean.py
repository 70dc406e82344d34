"""The command `clean`."""

from __future__ import annotations

from typing import Annotated

from surgery_cli.console.arguments import Output, directory
from surgery_cli.console.printing import print_report
from surgery_cli.inputs.addresses import Address, address
from surgery_cli.settings.declaration import Group, setting


def clean(
    path: Annotated[
        Address,
        directory("PATH", "A destination, or the directory in which destinations stand.", address),
    ],
    *,
    dry_run: Annotated[
        bool, setting("Print what would be removed or finished, and do nothing.", Group.REMOVE)
    ] = False,
    stale: Annotated[
        bool,
        setting(
            "Remove also what runs on other machines left, if you know that they are over.",
            Group.REMOVE,
        ),
    ] = False,
    output: Output,
) -> int:
    """Remove what killed runs of `surgery` left; exit code 1 if something may still be in use.

    A run says in its staging directory which process it is, so that a living one's is never removed. What a killed
    `--force` has half replaced in a bucket is finished: the new checkpoint, which is whole, comes in its place.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import cleaning

    found = surgery.clean(path, stale=stale, dry_run=dry_run)
    print_report(found, output, cleaning.render, consequences=found.notes, is_good=not found.kept)
    return 1 if found.kept else 0
