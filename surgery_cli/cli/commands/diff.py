"""The command `diff`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from surgery_cli.cli.options.patterns import Patterns
from surgery_cli.console.arguments import Opened, Output, directory
from surgery_cli.console.formats.files import (
    HtmlTo,
    OutputTo,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.printing import print_report, progress, saying
from surgery_cli.inputs.addresses import Address, checkpoint_address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import MEMORY_BYTES, Item, Memory, Step
from surgery_cli.settings.values import TOLERANCE


def diff(
    a: Annotated[Address, Opened(), directory("A", "A checkpoint.", checkpoint_address)],
    b: Annotated[
        Address, Opened(), directory("B", "The one to compare it with.", checkpoint_address)
    ],
    at: Patterns = None,
    *,
    structure: Annotated[
        bool, setting("Compare paths, kinds, shapes and dtypes only.", Group.COMPARE)
    ] = False,
    rtol: Annotated[
        float,
        setting(
            "Relative tolerance: values are equal that are no more than atol + rtol × magnitude apart.",
            Group.COMPARE,
            *TOLERANCE,
        ),
    ] = 0.0,
    atol: Annotated[float, setting("Absolute tolerance.", Group.COMPARE, *TOLERANCE)] = 0.0,
    step: Step = None,
    item: Item = None,
    memory_bytes: Memory = MEMORY_BYTES,
    output_to: OutputTo = (),
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Compare structure and values of two checkpoints; exit code 1 if they differ.

    NaN equals NaN, and -0 equals 0. Leaves that refer to the same stored bytes are not read.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import difference

    files = output_files(output_to, html, "diff", a, b)
    with failures_written(files), progress(output) as listener:
        found = surgery.diff(
            a,
            b,
            tuple(at or ()),
            step=step,
            item=item,
            structure=structure,
            rtol=rtol,
            atol=atol,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    render = partial(difference.render, verbose=output.verbose)
    write_files(found, files, render)
    is_good = not (found.only_in_a or found.only_in_b or found.changed)
    print_report(found, output, render, is_good=is_good)
    return 0 if is_good else 1
