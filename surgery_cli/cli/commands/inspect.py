"""The command `inspect`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from surgery_cli.cli.options.patterns import Patterns
from surgery_cli.cli.rendering.spelling import said_in_options
from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.formats.files import (
    HtmlTo,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.printing import print_document, progress, saying
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.reshard import HostReading, Reshard
from surgery_cli.settings.shared import MEMORY_BYTES, Item, Memory, Params, Step
from surgery_cli.words.ills import NAMES


def inspect(
    checkpoint: Checkpoint,
    at: Patterns = None,
    *,
    stats: Annotated[
        bool, setting("Read every value: mean, std, range, norm, histogram.", Group.SHOW)
    ] = False,
    only: Annotated[
        Literal["bad"] | None,
        setting(
            f"Read every value, and show what is wrong alone: {NAMES}; exit code 1 if any is.",
            Group.SHOW,
        ),
    ] = None,
    optimizer: Annotated[
        bool, setting("Name the twins and clocks of the optimizer state.", Group.SHOW)
    ] = False,
    depth: Annotated[
        int | None, setting("Fold what is below N keys into one line.", Group.SHOW, "N", least=1)
    ] = None,
    digests: Annotated[
        bool, setting("Read every value: a digest of each leaf.", Group.SHOW)
    ] = False,
    step: Step = None,
    item: Item = None,
    params: Params = None,
    memory_bytes: Memory = MEMORY_BYTES,
    reads: HostReading,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Show what is in a checkpoint: its tree, with shapes, dtypes and bytes.

    Only metadata is read, unless values are asked for with `--stats` or `--digests`.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import inspection

    files = output_files((), html, "inspect", checkpoint)
    with failures_written(files), progress(output) as listener, said_in_options(Reshard):
        found = surgery.inspect(
            checkpoint,
            tuple(at or ()),
            step=step,
            item=item,
            params=params,
            stats=stats,
            only=only,
            digests=digests,
            optimizer=optimizer,
            layout=reads.request,
            hosts=reads.hosts,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    render = partial(inspection.render, depth=depth, verbose=output.verbose)
    write_files(found, files, render)
    print_document(found, output, render)
    return 1 if only is not None and found.leaves else 0
