"""Settings that several commands have, and those that a plan file says as well."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from surgery_cli.inputs.addresses import local_object
from surgery_cli.optimizer.follow.answers import OptimizerPolicy
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import LEAST_MEMORY, kinds_of, memory_of, variables_of

Step = Annotated[
    int | None,
    setting(
        "Which step of a root; the newest finished one by default.",
        Group.CHECKPOINT,
        "N",
        on_record=False,
    ),
]
Item = Annotated[
    str | None,
    setting(
        "Which item of a step; its name is then no part of paths.",
        Group.CHECKPOINT,
        "NAME",
        on_record=False,
    ),
]
Params = Annotated[
    str | None,
    setting(
        "Where the params stand, if not at `params`, at `target` or as an item of that name.",
        Group.CHECKPOINT,
        "AT",
    ),
]
LikeInit = Annotated[
    str | None,
    setting(
        "The function of your script that makes its state: check that it can restore the result.",
        Group.CHECK,
        "FILE.py:FUNCTION",
        local_object,
    ),
]
Memory = Annotated[
    Annotated[int, Meta(ge=LEAST_MEMORY)],
    setting(
        "Bytes of tensors in memory at once; a 16 MiB block or a stored chunk may take more, which is said.",
        Group.MEMORY,
        "SIZE",
        option="--memory",
        read=memory_of,
        default="4GiB",
        of_host=True,
    ),
]
MEMORY_BYTES: Final = 4 << 30
"""What that is by default."""

DryRun = Annotated[bool, setting("Show what would be done; nothing is written.", Group.WRITE)]
Variables = Annotated[
    dict[str, str] | None,
    setting(
        "Fill `${NAME}` in the plan or in options; repeatable.",
        Group.EDIT,
        "NAME=VALUE",
        option="--set",
        read=variables_of,
    ),
]


class AbovePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan file may say beside its edits, and a command above it."""

    seed: Annotated[
        Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None,
        setting("Seed of every random value; 0 by default.", Group.EDIT, "N"),
    ] = None
    params: Params = None
    optimizer: Annotated[
        OptimizerPolicy | None,
        setting(
            "What becomes of twins (Adam's `mu` and `nu` of edited params), where an edit does not say: `keep` leaves"
            " them, `transform` edits them as their params were, `reset` starts them anew, `warm` starts `mu` at 0 and"
            " keeps what it can of `nu`.",
            Group.OPTIMIZER,
        ),
    ] = None
    optimizer_kind: Annotated[
        str | dict[str, str] | None,
        setting(
            "The optax factory that made the optimizer state, e.g. adamw, or its call, e.g. 'adamw(1e-3, b2=0.95)';"
            " AT=KIND for one node (in a plan a mapping).",
            Group.OPTIMIZER,
            "[AT=]KIND",
            read=kinds_of,
        ),
    ] = None
