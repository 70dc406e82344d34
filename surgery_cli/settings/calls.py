"""How the user's model is called on a checkpoint: by `probe`, and by the probe of every command that writes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from surgery_cli.inputs.addresses import local_object
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import bindings_of, static_of, streams_of


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the user's model is called on a checkpoint."""

    call: Annotated[
        dict[str, Any],
        setting(
            "Static argument of the model's call, as `train=false`; repeatable.",
            Group.CALL,
            metavar="NAME=VALUE",
            read=static_of,
        ),
    ] = {}
    streams: Annotated[
        dict[str, int],
        setting(
            "Seed of a random stream of the model, as `dropout=0`; repeatable.",
            Group.CALL,
            option="--rng",
            metavar="NAME=SEED",
            read=streams_of,
        ),
    ] = {}
    bind: Annotated[
        dict[str, str],
        setting(
            "Where a collection of the model stands, as `batch_stats=ema/stats`; repeatable.",
            Group.CALL,
            metavar="NAME=AT",
            read=bindings_of,
        ),
    ] = {}
    model_b: Annotated[
        str | None,
        setting(
            "The model of the checkpoint that it is compared with, where that is another model.",
            Group.CALL,
            metavar="FILE.py:NAME",
            parser=local_object,
            needs="against",
        ),
    ] = None
    grad: Annotated[
        bool, setting("Gradients at every call of the model and of params, too.", Group.CALL)
    ] = False
    loss: Annotated[
        str | None,
        setting(
            "With `--grad`, called as loss(output, **inputs); else a random projection of the output.",
            Group.CALL,
            metavar="FILE.py:NAME",
            parser=local_object,
            needs="grad",
        ),
    ] = None
    vmap_axis: Annotated[
        str,
        setting(
            "Map the batch's first axis under this name.",
            Group.CALL,
            option="--vmap",
            metavar="AXIS",
        ),
    ] = ""
    ensemble: Annotated[
        int | None,
        setting(
            "Run each of N models whose variables the checkpoint stacks on a first axis.",
            Group.CALL,
            metavar="N",
            least=1,
        ),
    ] = None
