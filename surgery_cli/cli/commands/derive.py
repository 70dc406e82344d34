"""The command `derive`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from surgery_cli.console.arguments import Output, directory
from surgery_cli.console.printing import (
    print_aside,
    print_assumed,
    print_json,
    print_text,
    progress,
    saying,
)
from surgery_cli.inputs.addresses import Address, checkpoint_address, local_object
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import MEMORY_BYTES, Item, Memory, Step


def derive(
    a: Annotated[Address, directory("A", "The checkpoint that there is.", checkpoint_address)],
    b: Annotated[
        Address | None,
        directory("[B]", "One with the tree that is wanted.", checkpoint_address),
    ] = None,
    *,
    like_init: Annotated[
        str | None,
        setting(
            "The function of your script that makes its state: what it returns is B.",
            Group.COMPARE,
            "FILE.py:FUNCTION",
            local_object,
        ),
    ] = None,
    values: Annotated[
        bool | None,
        setting(
            "Read all values, or none; by default all, unless the first 64 MiB have none in common.",
            Group.COMPARE,
            option="--values/--no-values",
        ),
    ] = None,
    step: Step = None,
    item: Item = None,
    memory_bytes: Memory = MEMORY_BYTES,
    output: Output,
) -> int:
    """Propose the plan that makes of the tree of A that of B; exit code 1 if something is left open.

    B may be a checkpoint, a safetensors file, or (`--like-init`) what your script's function returns. The plan is
    printed, for `surgery apply`; what it rests on stands beside each edit and on standard error.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import derivation

    with progress(output) as listener:
        found = surgery.derive(
            a,
            b,
            like_init=like_init,
            values=values,
            step=step,
            item=item,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    if output.json:
        print_json(found)
    else:
        print_text(derivation.plan_text(found))
        if output.quiet:
            print_assumed(found, output)
        else:
            print_aside(found, partial(derivation.render, verbose=output.verbose))
    return 0 if found.is_whole else 1
