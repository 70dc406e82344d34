"""All commands: those of this room by their names, and one for every operation."""

from __future__ import annotations

from typing import Final

from surgery_cli.cli.commands.apply import apply
from surgery_cli.cli.commands.check import check
from surgery_cli.cli.commands.clean import clean
from surgery_cli.cli.commands.compact import compact
from surgery_cli.cli.commands.derive import derive
from surgery_cli.cli.commands.diff import diff
from surgery_cli.cli.commands.doctor import doctor
from surgery_cli.cli.commands.edits import edit_command
from surgery_cli.cli.commands.export import export
from surgery_cli.cli.commands.help import show_help, version
from surgery_cli.cli.commands.inspect import inspect
from surgery_cli.cli.commands.lint import lint
from surgery_cli.cli.commands.log import log
from surgery_cli.cli.commands.operations import operations as show_operations
from surgery_cli.cli.commands.operations import schema
from surgery_cli.cli.commands.plan import plan
from surgery_cli.cli.commands.rescue import rescue
from surgery_cli.cli.commands.reshard import reshard
from surgery_cli.cli.commands.seal import seal
from surgery_cli.cli.commands.verify import verify
from surgery_cli.cli.options.parameters import Command, with_options
from surgery_cli.operations.table import operations
from surgery_cli.probing.command import probe

COMMANDS: Final[dict[str, tuple[Command, tuple[str, ...]]]] = {
    "inspect": (
        inspect,
        (
            "surgery inspect runs/mnist",
            "surgery inspect runs/mnist@latest 'params/**/kernel' --stats",
            "surgery inspect runs/mnist --optimizer --json",
        ),
    ),
    "plan": (
        plan,
        (
            "surgery plan runs/mnist head.yaml --set by=0.5",
            "surgery plan runs/mnist@1000 head.yaml --verbose",
            "surgery plan runs/mnist-edited --inverse > undo.yaml",
        ),
    ),
    "apply": (
        apply,
        (
            "surgery apply runs/mnist runs/mnist-edited head.yaml",
            "surgery apply runs/mnist runs/mnist-edited head.yaml --dry-run",
            "surgery apply runs/mnist@1000 runs/mnist --as-step 1001 head.yaml --seal",
        ),
    ),
    "derive": (
        derive,
        (
            "surgery derive model.safetensors runs/mine > there.yaml",
            "surgery derive runs/old runs/new --values",
            "surgery derive runs/old runs/new --json",
        ),
    ),
    "diff": (
        diff,
        (
            "surgery diff runs/mnist runs/mnist-edited",
            "surgery diff runs/mnist@500 runs/mnist@latest params --rtol 1e-6",
            "surgery diff runs/mnist runs/other --structure --output markdown=diff.md",
        ),
    ),
    "verify": (
        verify,
        (
            "surgery verify runs/mnist-edited",
            "surgery verify runs/mnist-edited --like runs/mnist",
            "surgery verify runs/mnist --sample 5% --output junit=report.xml",
        ),
    ),
    "check": (
        check,
        (
            "surgery check runs/mnist policy.yaml",
            "surgery check runs/mnist@latest policy.yaml --output junit=report.xml",
            "surgery check runs/mnist policy.yaml --output markdown=summary.md --quiet",
        ),
    ),
    "seal": (
        seal,
        (
            "surgery seal runs/mnist@1000",
            "surgery seal runs/mnist --to manifest.json",
            "surgery seal runs/mnist --sha256sums SHA256SUMS",
        ),
    ),
    "log": (
        log,
        (
            "surgery log runs/mnist-edited",
            "surgery log runs/mnist-edited@1000",
            "surgery log runs/mnist-edited --json",
        ),
    ),
    "probe": (
        probe,
        (
            "surgery probe runs/mnist --model train.py:CNN --input 'float32[8,28,28,1]'",
            "surgery probe runs/mnist --model train.py:CNN --input batch.npz --grad",
            "surgery probe runs/mnist --model train.py:CNN --input batch.npz --against runs/edited",
        ),
    ),
    "reshard": (
        reshard,
        (
            "surgery reshard runs/big runs/big-16 --mesh fsdp=16 --spec 'params/**/kernel=fsdp,None'",
            "surgery reshard runs/big runs/one --mesh x=1",
            "surgery reshard runs/big runs/big-16 --mesh fsdp=16 --spec '**=fsdp' --dry-run",
        ),
    ),
    "export": (
        export,
        (
            "surgery export runs/mnist model.safetensors params --to safetensors",
            "surgery export runs/mnist params.npz params --to npz",
            "surgery export runs/mnist model.safetensors --to safetensors --plan names.yaml",
        ),
    ),
    "compact": (
        compact,
        (
            "surgery compact runs/edited runs/small",
            "surgery compact runs/edited runs/small --dry-run",
            "surgery compact runs/edited@1000 runs/small --seal",
        ),
    ),
    "doctor": (
        doctor,
        (
            "surgery doctor runs/mnist",
            "surgery doctor runs/mnist --read-data",
            "surgery doctor runs/mnist --json",
        ),
    ),
    "rescue": (
        rescue,
        (
            "surgery rescue runs/7.orbax-checkpoint-tmp",
            "surgery rescue runs/7.orbax-checkpoint-tmp runs-rescued/7",
            "surgery rescue runs/mnist@7 runs-rescued --fill-from runs/mnist",
        ),
    ),
    "clean": (
        clean,
        (
            "surgery clean runs/mnist-edited",
            "surgery clean runs/mnist-edited --dry-run",
            "surgery clean runs/mnist-edited --json",
        ),
    ),
    "lint": (
        lint,
        (
            "surgery lint plans/*.yaml",
            "surgery lint head.yaml policy.yaml --quiet",
            "surgery lint plans/*.yaml --json",
        ),
    ),
    "operations": (
        show_operations,
        (
            "surgery operations",
            "surgery operations normalize",
            "surgery operations normalize --json",
        ),
    ),
    "schema": (schema, ("surgery schema", "surgery schema > surgery.schema.json")),
    "help": (show_help, ("surgery help", "surgery help inspect", "surgery help rescale")),
    "version": (version, ("surgery version", "surgery version --json")),
}
"""The commands that are no single edit, each with what it is used for."""


def command_of(name: str) -> Command:
    """The command of that name, of either kind, under the signature that Typer reads."""
    return with_options(COMMANDS[name][0]) if name in COMMANDS else edit_command(name)


def examples_of(name: str) -> tuple[str, ...]:
    """The examples that end the help of a command; of an edit its own, looked at first, and sealed."""
    if name in COMMANDS:
        return COMMANDS[name][1]
    from surgery_cli.planning.command_line import example_command

    kind = operations()[name]
    example = example_command(kind)
    if not kind.writes:
        return (example, example.replace("SRC", "ROOT@latest", 1), f"{example} --json")
    return (
        example,
        f"{example} --dry-run --verbose",
        f"{example.replace('SRC DST', 'ROOT@1000 ROOT', 1)} --as-step 1001",
    )
