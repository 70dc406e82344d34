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

COMMANDS: Final[dict[str, tuple[Command, str]]] = {
    "inspect": (inspect, "surgery inspect runs/mnist 'params/**' --stats"),
    "plan": (plan, "surgery plan runs/mnist head.yaml --set by=0.5"),
    "apply": (apply, "surgery apply runs/mnist runs/mnist-edited head.yaml"),
    "derive": (derive, "surgery derive model.safetensors runs/mine > there.yaml"),
    "diff": (diff, "surgery diff runs/mnist runs/mnist-edited --rtol 1e-6"),
    "verify": (verify, "surgery verify runs/mnist-edited --like runs/mnist"),
    "check": (check, "surgery check runs/mnist policy.yaml --output junit=report.xml"),
    "seal": (seal, "surgery seal runs/mnist@1000"),
    "log": (log, "surgery log runs/mnist-edited"),
    "probe": (
        probe,
        "surgery probe runs/mnist --model train.py:CNN --input 'float32[8,28,28,1]'",
    ),
    "reshard": (
        reshard,
        "surgery reshard runs/big runs/big-16 --mesh fsdp=16 --spec 'params/**/kernel=fsdp,None'",
    ),
    "export": (export, "surgery export runs/mnist model.safetensors params --to safetensors"),
    "compact": (compact, "surgery compact runs/edited runs/small"),
    "doctor": (doctor, "surgery doctor runs/mnist"),
    "rescue": (rescue, "surgery rescue runs/7.orbax-checkpoint-tmp runs-rescued/7"),
    "clean": (clean, "surgery clean runs/mnist-edited"),
    "lint": (lint, "surgery lint plans/*.yaml"),
    "operations": (show_operations, "surgery operations normalize"),
    "schema": (schema, "surgery schema > surgery.schema.json"),
}
"""The commands that are no single edit, each with an example."""


def command_of(name: str) -> Command:
    """The command of that name, of either kind, under the signature that Typer reads."""
    return with_options(COMMANDS[name][0]) if name in COMMANDS else edit_command(name)


def example_of(name: str) -> str:
    """The example that ends the help of a command."""
    if name in COMMANDS:
        return COMMANDS[name][1]
    from surgery_cli.planning.command_line import example_command

    return example_command(operations()[name])
