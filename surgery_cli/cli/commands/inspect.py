"""The command `inspect`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from surgery_cli.cli.options.patterns import Patterns
from surgery_cli.cli.rendering.spelling import said_in_options
from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.printing import print_document, progress, saying
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.reshard import HostReading, Reshard
from surgery_cli.settings.shared import MEMORY_BYTES, Item, Memory, Params, Step


def inspect(
    checkpoint: Checkpoint,
    at: Patterns = None,
    *,
    stats: Annotated[
        bool, setting("Read every value: mean, std, range, norm, histogram.", Group.SHOW)
    ] = False,
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
    output: Output,
) -> int:
    """Show what is in a checkpoint: its tree, with shapes, dtypes and bytes.

    Only metadata is read, unless values are asked for with `--stats` or `--digests`.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import inspection

    with progress(output) as listener, said_in_options(Reshard):
        found = surgery.inspect(
            checkpoint,
            tuple(at or ()),
            step=step,
            item=item,
            params=params,
            stats=stats,
            digests=digests,
            optimizer=optimizer,
            layout=reads.request,
            hosts=reads.hosts,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    print_document(found, output, partial(inspection.render, depth=depth))
    return 0
