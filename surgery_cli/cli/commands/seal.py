"""The command `seal`."""

from __future__ import annotations

from typing import Annotated

from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.printing import print_report, progress, saying
from surgery_cli.inputs.addresses import destination_address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import MEMORY_BYTES, Item, Memory, Step


def seal(
    checkpoint: Checkpoint,
    *,
    to: Annotated[
        str | None,
        setting(
            "Write the record to FILE, not into CKPT.", Group.WRITE, "FILE", destination_address
        ),
    ] = None,
    sha256sums: Annotated[
        str | None,
        setting(
            "Write the SHA-256 of every file, the record's too, to FILE: `sha256sum -c` reads it in CKPT, on a disk.",
            Group.WRITE,
            "FILE",
            destination_address,
        ),
    ] = None,
    anew: Annotated[
        bool,
        setting(
            "Record what is there now, also where an earlier digest does not hold.", Group.WRITE
        ),
    ] = False,
    step: Step = None,
    item: Item = None,
    memory_bytes: Memory = MEMORY_BYTES,
    output: Output,
) -> int:
    """Record digests of all leaves and of every file: `verify` then finds every change of any byte.

    One file is added or replaced, and no data is touched: `surgery.json` beside the data, or `--to FILE`. With
    `--sha256sums FILE`, another one lists the digests of files for programs that check or sign them.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import seal

    with progress(output) as listener:
        found = surgery.seal(
            checkpoint,
            step=step,
            item=item,
            to=None if to is None else path_at(to),
            sha256sums=None if sha256sums is None else path_at(sha256sums),
            anew=anew,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    print_report(found, output, seal.render, consequences=found.notes)
    return 0
