"""Settings that several commands have, and those that a plan file says as well."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from surgery_cli.inputs.addresses import local_object
from surgery_cli.operations.base import OptimizerPolicy
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import kinds_of, variables_of

Step = Annotated[int | None, setting("Which step of a root.", Group.CHECKPOINT, metavar="N")]
Item = Annotated[
    str | None,
    setting("Which item of a step; drops it from paths.", Group.CHECKPOINT, metavar="NAME"),
]
Params = Annotated[
    str | None,
    setting("Where the params stand in the tree.", Group.CHECKPOINT, metavar="AT"),
]
LikeInit = Annotated[
    str | None,
    setting(
        "Your script's function: check that it can restore the result.",
        Group.CHECK,
        metavar="FILE.py:FUNCTION",
        parser=local_object,
    ),
]
DryRun = Annotated[bool, setting("Print what would be done, and do nothing.", Group.WRITE)]
Variables = Annotated[
    dict[str, str] | None,
    setting(
        "Fill `${NAME}` in the plan or the options; repeatable.",
        Group.EDIT,
        option="--set",
        metavar="NAME=VALUE",
        read=variables_of,
    ),
]


class AbovePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan file may say beside its edits, and a command above it."""

    seed: Annotated[
        Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None,
        setting("Seed of every random value.", Group.EDIT, metavar="N"),
    ] = None
    params: Params = None
    optimizer: Annotated[
        OptimizerPolicy | None,
        setting(
            "What becomes of twins in the optimizer state, where an edit does not say.",
            Group.OPTIMIZER,
        ),
    ] = None
    optimizer_kind: Annotated[
        str | dict[str, Any] | None,
        setting(
            "The optax factory that made the optimizer state, e.g. adamw; AT=KIND for one node (in a plan a mapping).",
            Group.OPTIMIZER,
            metavar="[AT=]KIND",
            read=kinds_of,
        ),
    ] = None
