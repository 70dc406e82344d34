"""The command `doctor`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from surgery_cli.console.arguments import Output, directory
from surgery_cli.console.printing import print_report, progress, saying
from surgery_cli.inputs.addresses import Address, address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import MEMORY_BYTES, Memory


def doctor(
    root: Annotated[
        Address,
        directory("ROOT", "A run directory; a single checkpoint, or what is left of one.", address),
    ],
    *,
    read_data: Annotated[
        bool,
        setting("Read and decode every leaf, and check digests on record.", Group.CHECK),
    ] = False,
    settled_seconds: Annotated[
        int,
        setting(
            "What changed within so many seconds may still be in work, and is not called damaged.",
            Group.CHECK,
            "SECONDS",
            option="--settled",
            least=0,
        ),
    ] = 600,
    memory_bytes: Memory = MEMORY_BYTES,
    output: Output,
) -> int:
    """Look over a run directory: which steps are whole, unfinished or damaged, what is left over, and what to do.

    Only metadata is read, unless `--read-data` asks for more. Nothing is changed or removed, ever. Exit code 1 if
    something is not whole or left over, 3 if something could not be looked at.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import examination

    with progress(output) as listener:
        found = surgery.doctor(
            root,
            read_data=read_data,
            settled_seconds=settled_seconds,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    render = partial(examination.render, verbose=output.verbose)
    print_report(found, output, render, is_good=not found.exit_code)
    return found.exit_code
