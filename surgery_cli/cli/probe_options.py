"""The options that say how the user's model is called, by `probe` and by the probe of every writing command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from surgery_cli.inputs.addresses import LocalAddress, local_object

if TYPE_CHECKING:
    from surgery_cli.surgery import ProbeOptions


def calling(
    *,
    call: Annotated[
        list[str] | None,
        typer.Option(
            "--call",
            metavar="NAME=VALUE",
            help="Static argument of the model's call, as `train=false`; repeatable.",
        ),
    ] = None,
    vmap: Annotated[
        str,
        typer.Option("--vmap", metavar="AXIS", help="Map the batch's first axis under this name."),
    ] = "",
    ensemble: Annotated[
        int | None,
        typer.Option(
            "--ensemble",
            metavar="N",
            min=1,
            help="Run each of N models whose variables the checkpoint stacks on a first axis.",
        ),
    ] = None,
    rng: Annotated[
        list[str] | None,
        typer.Option(
            "--rng",
            metavar="NAME=SEED",
            help="Seed of a random stream of the model, as `dropout=0`; repeatable.",
        ),
    ] = None,
    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind",
            metavar="NAME=AT",
            help="Where a collection of the model stands, as `batch_stats=ema/stats`; repeatable.",
        ),
    ] = None,
    grad: Annotated[
        bool,
        typer.Option("--grad", help="Gradients at every call of the model and of params, too."),
    ] = False,
    loss: Annotated[
        LocalAddress | None,
        typer.Option(
            "--loss",
            parser=local_object,
            metavar="FILE.py:NAME",
            help="With `--grad`, called as loss(output, **inputs); else a random projection of the output.",
        ),
    ] = None,
) -> ProbeOptions:
    """How the user's model is called on a checkpoint."""
    from surgery_cli.probe.settings import read_bindings, read_static, read_streams
    from surgery_cli.surgery import ProbeOptions

    return ProbeOptions(
        call=read_static(call or ()),
        vmap_axis=vmap,
        ensemble=ensemble or 0,
        streams=read_streams(rng or ()),
        bind=read_bindings(bind or ()),
        grad=grad,
        loss=loss,
    )
