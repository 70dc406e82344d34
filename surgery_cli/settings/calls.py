"""How the user's model is called on a checkpoint: by `probe`, and by the probe of every command that writes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import OBJECT, bindings_of, static_of, streams_of


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the user's model is called on a checkpoint."""

    call: Annotated[
        dict[str, Any],
        setting(
            "Static argument of the model's call, as `train=false`; repeatable.",
            Group.CALL,
            "NAME=VALUE",
            read=static_of,
        ),
    ] = {}
    streams: Annotated[
        dict[str, int],
        setting(
            "Seed of a random stream of the model, as `dropout=0`; repeatable.",
            Group.CALL,
            "NAME=SEED",
            option="--rng",
            read=streams_of,
        ),
    ] = {}
    bind: Annotated[
        dict[str, str],
        setting(
            "Where a collection of the model stands, as `batch_stats=ema/stats`; repeatable.",
            Group.CALL,
            "NAME=AT",
            read=bindings_of,
        ),
    ] = {}
    model_b: Annotated[
        str | None,
        setting(
            "The model of the other checkpoint (of the result, before a commit), where it is another.",
            Group.CALL,
            *OBJECT,
            needs="against",
        ),
    ] = None
    grad: Annotated[
        bool, setting("Gradients, too, at every call and of the params.", Group.CALL)
    ] = False
    loss: Annotated[
        str | None,
        setting(
            "With `--grad`, called as loss(output, **inputs); else a random projection of the output.",
            Group.CALL,
            *OBJECT,
            needs="grad",
        ),
    ] = None
    vmap_axis: Annotated[
        str,
        setting(
            "Call the model under `jax.vmap` over the batch's first axis, which gets this name.",
            Group.CALL,
            "AXIS",
            option="--vmap",
        ),
    ] = ""
    ensemble: Annotated[
        int | None,
        setting(
            "Run each of N models whose variables the checkpoint stacks on a first axis.",
            Group.CALL,
            "N",
            least=1,
        ),
    ] = None
