"""The command `rescue`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import typer

from surgery_cli.console.arguments import Output, complete_checkpoint, directory
from surgery_cli.console.printing import print_report, progress, saying
from surgery_cli.errors import PlanError
from surgery_cli.inputs.addresses import (
    Address,
    address,
    checkpoint_address,
    destination_address,
    local_object,
)
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import MEMORY_BYTES, Memory

_Broken = Annotated[
    Address, directory("BROKEN", "What is left of a checkpoint, under whatever name.", address)
]
_Destination = Annotated[
    Address | None,
    typer.Argument(
        parser=destination_address,
        metavar="[DST]",
        help="Where the new checkpoint appears; without it, what is left is shown, and nothing written.",
        show_default=False,
        autocompletion=complete_checkpoint,
    ),
]

_FillFrom = Annotated[
    str | None,
    setting(
        "Take what is not whole from OTHER; of a run, from its newest whole step before.",
        Group.WRITE,
        "OTHER",
        checkpoint_address,
    ),
]
_Fill = Annotated[
    Literal["init"] | None,
    setting("Fill what is not whole as the function of `--like-init` makes it.", Group.WRITE),
]
_FillBy = Annotated[
    Literal["leaf", "chunk"],
    setting("Take whole leaves from it, or the chunks alone that are missing.", Group.WRITE),
]
_Like = Annotated[
    str | None,
    setting(
        "Where the metadata is lost, names and nesting are those of OTHER.",
        Group.CHECKPOINT,
        "OTHER",
        checkpoint_address,
    ),
]
_LikeInit = Annotated[
    str | None,
    setting(
        "The function of your script that makes its state: names and nesting, and values for `--fill init`.",
        Group.CHECKPOINT,
        "FILE.py:FUNCTION",
        local_object,
    ),
]


def rescue(
    broken: _Broken,
    destination: _Destination = None,
    *,
    allow_partial: Annotated[
        bool, setting("Write the leaves that are whole, and leave out the others.", Group.WRITE)
    ] = False,
    fill_from: _FillFrom = None,
    fill: _Fill = None,
    fill_by: _FillBy = "leaf",
    like: _Like = None,
    like_init: _LikeInit = None,
    memory_bytes: Memory = MEMORY_BYTES,
    output: Output,
) -> int:
    """Find every leaf that is still whole in a broken or unfinished save, and write a new checkpoint of them.

    Nothing is guessed, and nothing in BROKEN is changed: each leaf is whole, partly there or lost, with what proves it.
    Exit code 1 without DST if something is lost, a leaf or the tree around them.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import rescue

    if destination is None and allow_partial:
        raise PlanError(
            "`--allow-partial` says what may be written, and no DST is named",
            fix="name one, or leave the option out",
        )
    with progress(output) as listener:
        found = surgery.rescue(
            broken,
            destination,
            allow_partial=allow_partial,
            like=like,
            like_init=like_init,
            fill_from=fill_from,
            fill=fill,
            fill_by=fill_by,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    render = partial(rescue.render, verbose=output.verbose)
    is_good = found.is_whole or destination is not None
    print_report(found, output, render, consequences=found.notes, is_good=is_good)
    return 0 if is_good else 1
