"""All commands: those of this room by their names, and one for every operation."""

from __future__ import annotations

from typing import Final

from surgery_cli.cli.options.parameters import Command, with_options
from surgery_cli.loading import loaded
from surgery_cli.operations.table import operations

COMMANDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "inspect": (
        "surgery_cli.cli.commands.inspect:inspect",
        (
            "surgery inspect runs/mnist",
            "surgery inspect runs/mnist@latest 'params/**/kernel' --stats",
            "surgery inspect runs/mnist --optimizer --json",
        ),
    ),
    "plan": (
        "surgery_cli.cli.commands.plan:plan",
        (
            "surgery plan runs/mnist head.yaml --set by=0.5",
            "surgery plan runs/mnist@1000 head.yaml --verbose",
            "surgery plan runs/mnist-edited --inverse > undo.yaml",
        ),
    ),
    "apply": (
        "surgery_cli.cli.commands.apply:apply",
        (
            "surgery apply runs/mnist runs/mnist-edited head.yaml",
            "surgery apply runs/mnist runs/mnist-edited head.yaml --dry-run",
            "surgery apply runs/mnist@1000 runs/mnist --as-step 1001 head.yaml --seal",
        ),
    ),
    "derive": (
        "surgery_cli.cli.commands.derive:derive",
        (
            "surgery derive model.safetensors runs/mine > there.yaml",
            "surgery derive runs/old runs/new --values",
            "surgery derive runs/old runs/new --json",
        ),
    ),
    "diff": (
        "surgery_cli.cli.commands.diff:diff",
        (
            "surgery diff runs/mnist runs/mnist-edited",
            "surgery diff runs/mnist@500 runs/mnist@latest params --rtol 1e-6",
            "surgery diff runs/mnist runs/other --structure --output markdown=diff.md",
        ),
    ),
    "verify": (
        "surgery_cli.cli.commands.verify:verify",
        (
            "surgery verify runs/mnist-edited",
            "surgery verify runs/mnist-edited --like runs/mnist",
            "surgery verify runs/mnist --sample 5% --output junit=report.xml",
        ),
    ),
    "check": (
        "surgery_cli.cli.commands.check:check",
        (
            "surgery check runs/mnist policy.yaml",
            "surgery check runs/mnist@latest policy.yaml --output junit=report.xml",
            "surgery check runs/mnist policy.yaml --output markdown=summary.md --quiet",
        ),
    ),
    "seal": (
        "surgery_cli.cli.commands.seal:seal",
        (
            "surgery seal runs/mnist@1000",
            "surgery seal runs/mnist --to manifest.json",
            "surgery seal runs/mnist --sha256sums SHA256SUMS",
        ),
    ),
    "log": (
        "surgery_cli.cli.commands.log:log",
        (
            "surgery log runs/mnist-edited",
            "surgery log runs/mnist-edited@1000",
            "surgery log runs/mnist-edited --json",
        ),
    ),
    "probe": (
        "surgery_cli.probing.command:probe",
        (
            "surgery probe runs/mnist --model train.py:CNN --input 'float32[8,28,28,1]'",
            "surgery probe runs/mnist --model train.py:CNN --input batch.npz --grad",
            "surgery probe runs/mnist --model train.py:CNN --input batch.npz --against runs/edited",
        ),
    ),
    "reshard": (
        "surgery_cli.cli.commands.reshard:reshard",
        (
            "surgery reshard runs/big runs/big-16 --mesh fsdp=16 --spec 'params/**/kernel=fsdp,None'",
            "surgery reshard runs/big runs/finer --chunk-bytes 64MiB",
            "surgery reshard runs/big runs/big-16 --mesh fsdp=16 --spec '**=fsdp' --dry-run",
        ),
    ),
    "export": (
        "surgery_cli.cli.commands.export:export",
        (
            "surgery export runs/mnist model.safetensors params --to safetensors",
            "surgery export runs/mnist params.npz params --to npz",
            "surgery export runs/mnist model.safetensors --to safetensors --plan names.yaml",
        ),
    ),
    "compact": (
        "surgery_cli.cli.commands.compact:compact",
        (
            "surgery compact runs/edited runs/small",
            "surgery compact runs/edited runs/small --dry-run",
            "surgery compact runs/edited@1000 runs/small --seal",
        ),
    ),
    "doctor": (
        "surgery_cli.cli.commands.doctor:doctor",
        (
            "surgery doctor runs/mnist",
            "surgery doctor runs/mnist --read-data",
            "surgery doctor runs/mnist --json",
        ),
    ),
    "rescue": (
        "surgery_cli.cli.commands.rescue:rescue",
        (
            "surgery rescue runs/7.orbax-checkpoint-tmp",
            "surgery rescue runs/7.orbax-checkpoint-tmp runs-rescued/7",
            "surgery rescue runs/mnist@7 runs-rescued --fill-from runs/mnist",
        ),
    ),
    "clean": (
        "surgery_cli.cli.commands.clean:clean",
        (
            "surgery clean runs/mnist-edited",
            "surgery clean runs/mnist-edited --dry-run",
            "surgery clean runs/mnist-edited --json",
        ),
    ),
    "lint": (
        "surgery_cli.cli.commands.lint:lint",
        (
            "surgery lint plans/*.yaml",
            "surgery lint head.yaml policy.yaml --quiet",
            "surgery lint plans/*.yaml --json",
        ),
    ),
    "operations": (
        "surgery_cli.cli.commands.operations:operations",
        (
            "surgery operations",
            "surgery operations normalize",
            "surgery operations normalize --json",
        ),
    ),
    "schema": (
        "surgery_cli.cli.commands.operations:schema",
        ("surgery schema", "surgery schema > surgery.schema.json"),
    ),
    "help": (
        "surgery_cli.cli.commands.help:show_help",
        ("surgery help", "surgery help inspect", "surgery help rescale"),
    ),
    "version": (
        "surgery_cli.cli.commands.help:version",
        ("surgery version", "surgery version --json"),
    ),
}
"""The commands that are no single edit: the function of each, loaded when it is asked for, and what it is used for."""


def command_of(name: str) -> Command:
    """The command of that name, of either kind, under the signature that Typer reads."""
    if name in COMMANDS:
        return with_options(function_of(name))
    from surgery_cli.cli.commands.edits import edit_command

    return edit_command(name)


def function_of(name: str) -> Command:
    """The function of one of ``COMMANDS``."""
    found: Command = loaded(COMMANDS[name][0])
    return found


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
