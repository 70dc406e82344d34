"""The options that commands share, each declared once.

A group is a function whose parameters are its options; `taking` gives them to a command, or to a larger group, which
receives what the group makes of them as one argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
import typer

from surgery_cli.cli.completion import complete_checkpoint, complete_leaf
from surgery_cli.cli.option_groups import taking
from surgery_cli.cli.option_values import kinds_of, memory_of, tolerance_of
from surgery_cli.cli.probe_options import calling
from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.addresses import LocalAddress, local_address, local_input, local_object

if TYPE_CHECKING:
    from surgery_cli.surgery import Options, ProbeOptions


def _directory(metavar: str, help: str, parser: Callable[[str], LocalAddress]) -> Any:
    return typer.Argument(
        metavar=metavar,
        help=help,
        autocompletion=complete_checkpoint,
        show_default=False,
        parser=parser,
    )


read_address: Final = partial(local_address, refusal=CheckpointError)
written_address: Final = partial(local_address, is_written=True)
"""What the options that name a file or directory are parsed by; ``local_address`` for files, ``local_input`` too."""

Source = Annotated[
    LocalAddress,
    _directory("SRC", "The checkpoint to edit; `ROOT@N` is step N of a root.", read_address),
]
Destination = Annotated[
    LocalAddress, _directory("DST", "Where the new checkpoint appears.", written_address)
]
Checkpoint = Annotated[
    LocalAddress,
    _directory("CKPT", "The checkpoint; `ROOT@N` is step N of a root.", read_address),
]
CheckpointA = Annotated[LocalAddress, _directory("A", "A checkpoint.", read_address)]
CheckpointB = Annotated[LocalAddress, _directory("B", "The one to compare it with.", read_address)]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[AT]...",
        help="Patterns of leaves: `params/Dense_*`, `**/kernel`; all leaves if left out.",
        autocompletion=complete_leaf,
        show_default=False,
    ),
]
PlanFile = Annotated[
    LocalAddress,
    typer.Argument(
        parser=local_address,
        metavar="PLAN",
        help="The plan: .yaml, .toml or .json; `-` is standard input.",
        show_default=False,
    ),
]
Step = Annotated[int | None, typer.Option("--step", metavar="N", help="Which step of a root.")]
Item = Annotated[
    str | None,
    typer.Option("--item", metavar="NAME", help="Which item of a step; drops it from paths."),
]
Params = Annotated[
    str | None,
    typer.Option("--params", metavar="AT", help="Where the params stand in the tree."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Fill `${NAME}` in the plan or the options; repeatable."
    ),
]
LikeInit = Annotated[
    LocalAddress | None,
    typer.Option(
        "--like-init",
        parser=local_object,
        metavar="FILE.py:FUNCTION",
        help="Your script's function: check that it can restore the result.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
]


class Output(NamedTuple):
    """How a command speaks."""

    json: bool
    quiet: bool
    verbose: bool


def output(
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="No progress, no report; what `inspect` and `plan` show stays. What a run assumed, or did beyond"
            " what was typed, is still said on standard error.",
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List single leaves.")] = False,
) -> Output:
    """How the command speaks."""
    return Output(json=json, quiet=quiet, verbose=verbose)


@taking(probe_options=calling)
def drafting(
    *,
    step: Step = None,
    item: Item = None,
    as_step: Annotated[
        int | None, typer.Option("--as-step", metavar="N", help="Rename the step to N.")
    ] = None,
    params: Params = None,
    like_init: LikeInit = None,
    optimizer: Annotated[
        Literal["keep", "transform", "reset", "warm"] | None,
        typer.Option(
            "--optimizer",
            metavar="keep|transform|reset|warm",
            help="What becomes of twins in the optimizer state.",
        ),
    ] = None,
    optimizer_kind: Annotated[
        list[str] | None,
        typer.Option(
            "--optimizer-kind",
            metavar="[AT=]KIND",
            help="The optax factory that made the optimizer state, e.g. adamw; AT=KIND for one node (repeatable).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed of every random value.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="Where to compute: host, cpu, gpu, tpu, or gpu:1.",
            show_default=True,
        ),
    ] = "host",
    mesh: Annotated[
        str | None,
        typer.Option("--mesh", metavar="AXIS=N,...", help="Spread leaves over devices."),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            "--memory", metavar="SIZE", help="Bytes in flight at most.", show_default=True
        ),
    ] = "4GiB",
    link: Annotated[
        Literal["auto", "reflink", "hard", "never"],
        typer.Option(
            "--link",
            metavar="auto|reflink|hard|never",
            help="How untouched files are shared.",
            show_default=True,
        ),
    ] = "auto",
    compact: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(
            "--compact",
            metavar="auto|always|never",
            help="Whether to write a fresh store.",
            show_default=True,
        ),
    ] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing DST, once the new one is whole.")
    ] = False,
    allow_non_finite: Annotated[
        bool,
        typer.Option("--allow-non-finite", help="Accept NaN and infinities that SRC did not have."),
    ] = False,
    seal: Annotated[
        bool, typer.Option("--seal", help="Record digests of all leaves and files of DST.")
    ] = False,
    probe: Annotated[
        LocalAddress | None,
        typer.Option(
            "--probe",
            parser=local_object,
            metavar="FILE.py:MODEL",
            help="Run your model on SRC and the result first; new NaN or infinities stop the commit.",
        ),
    ] = None,
    input: Annotated[
        list[LocalAddress] | None,
        typer.Option(
            "--input",
            parser=local_input,
            metavar="[NAME=]SPEC",
            help="The probe's batch: `float32[8,28,28,1]` or a file `batch.npz`; repeatable.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="X",
            parser=tolerance_of,
            help="Stop, too, if the probe's outputs are further apart, relative.",
        ),
    ] = None,
    model_b: Annotated[
        LocalAddress | None,
        typer.Option(
            "--model-b",
            parser=local_object,
            metavar="FILE.py:MODEL",
            help="The probe's model of the result, where the edit makes it another.",
        ),
    ] = None,
    probe_options: ProbeOptions,
) -> Options:
    """Everything that shapes a draft and how it is written."""
    from surgery_cli.surgery import Options

    return Options(
        step=step,
        item=item,
        as_step=as_step,
        params=params,
        like_init=like_init,
        optimizer=optimizer,
        optimizer_kind=kinds_of(optimizer_kind),
        seed=seed,
        device=device,
        mesh=mesh,
        memory_bytes=memory_of(memory),
        link=link,
        compact=compact,
        force=force,
        allow_non_finite=allow_non_finite,
        seal=seal,
        probe=probe,
        probe_inputs=tuple(input or ()),
        tolerance=tolerance,
        probe_options=msgspec.structs.replace(probe_options, model_b=model_b),
    )
