"""The command `probe`: the user's model on a checkpoint, looked into."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from surgery_cli.cli.option_groups import taking
from surgery_cli.cli.option_values import tolerance_of
from surgery_cli.cli.options import (
    Checkpoint,
    Item,
    Output,
    Params,
    Step,
    output,
    read_address,
    written_address,
)
from surgery_cli.cli.printing import print_document
from surgery_cli.cli.probe_options import calling
from surgery_cli.inputs.addresses import LocalAddress, local_input, local_object

if TYPE_CHECKING:
    from surgery_cli.surgery import ProbeOptions

_Words = list[str] | None


@taking(calling=calling, output=output)
def probe(
    checkpoint: Checkpoint,
    *,
    model: Annotated[
        LocalAddress,
        typer.Option(
            "--model",
            parser=local_object,
            metavar="FILE.py:NAME",
            help="The model; arguments as in `CNN(features=16)`.",
        ),
    ],
    input: Annotated[
        list[LocalAddress] | None,
        typer.Option(
            "--input",
            parser=local_input,
            metavar="[NAME=]SPEC",
            help="`float32[8,28,28,1]`, `int32[8,128]<1000`, or a file `batch.npz`; repeatable.",
        ),
    ] = None,
    at: Annotated[
        _Words, typer.Option("--at", metavar="PATTERN", help="Only modules at these paths.")
    ] = None,
    only: Annotated[
        _Words, typer.Option("--only", metavar="CLASS", help="Only modules of these classes.")
    ] = None,
    calls: Annotated[
        _Words,
        typer.Option("--calls", metavar="METHOD", help="Only calls of these methods; `*` for all."),
    ] = None,
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="Run a method or submodule on its own.")
    ] = "",
    model_input: Annotated[
        list[LocalAddress] | None,
        typer.Option(
            "--model-input",
            parser=local_input,
            metavar="[NAME=]SPEC",
            help="With `--run` of what only exists inside a compact method: the whole model's input.",
        ),
    ] = None,
    until: Annotated[
        str,
        typer.Option("--until", metavar="PATH", help="Stop after a module; `PATH:in` before it."),
    ] = "",
    shapes: Annotated[
        bool, typer.Option("--shapes", help="Everything from shapes alone; no tensor is read.")
    ] = False,
    against: Annotated[
        LocalAddress | None,
        typer.Option(
            "--against",
            parser=read_address,
            metavar="CKPT",
            help="Compare with this checkpoint, call by call.",
        ),
    ] = None,
    model_b: Annotated[
        LocalAddress | None,
        typer.Option(
            "--model-b",
            parser=local_object,
            metavar="FILE.py:NAME",
            help="The model of the other checkpoint.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="X",
            parser=tolerance_of,
            help="How far the outputs may be apart, relative: 1e-5 for float32, 2e-2 for bfloat16.",
        ),
    ] = None,
    save: Annotated[
        LocalAddress | None,
        typer.Option(
            "--save",
            parser=written_address,
            metavar="FILE.npz",
            help="Write the shown values, whole.",
        ),
    ] = None,
    plot: Annotated[
        LocalAddress | None,
        typer.Option(
            "--plot",
            parser=written_address,
            metavar="FILE.svg",
            help="Draw scales by depth: .svg, .png or .pdf.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, help="Seed of inputs and random streams."),
    ] = 0,
    params: Params = None,
    step: Step = None,
    item: Item = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="NAME", help="cpu, gpu, tpu, or gpu:1.", show_default=True
        ),
    ] = "cpu",
    calling: ProbeOptions,
    output: Output,
) -> int:
    """Run a model on a checkpoint and look inside; exit code 1 on NaN or a difference.

    A row for each module call, in the order in which calls finish. FILE.py is imported, and nothing else of yours.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import probe as rendering

    options = msgspec.structs.replace(
        calling,
        step=step,
        item=item,
        params=params,
        seed=seed,
        run=run,
        model_inputs=tuple(model_input or ()),
        until=until,
        at=tuple(at or ()),
        only=tuple(only or ()),
        methods=tuple(calls or ()),
        shapes=shapes,
        against=against,
        model_b=model_b,
        tolerance=tolerance,
        save=save,
        plot=plot,
        device=device,
    )
    found = surgery.probe(
        checkpoint, model=model, inputs=tuple(input or ()), options=options, say=_say
    )
    if output.json or not output.quiet:
        print_document(found, output, partial(rendering.render, verbose=output.verbose))
    return 0 if found.is_sound else 1


def _say(line: str) -> None:
    # Before anything else happens: a script without a guard would begin to train here
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
