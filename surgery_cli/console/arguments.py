"""The arguments that commands share, and how a command speaks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from surgery_cli.inputs.addresses import (
    Address,
    address,
    checkpoint_address,
    destination_address,
)
from surgery_cli.settings.declaration import Group, setting


def complete_checkpoint(incomplete: str) -> list[str]:
    """Directories and files that continue what was typed, and steps behind `@`; directories end with a slash."""
    root, at, begun = incomplete.rpartition("@")
    if at and os.path.isdir(os.path.expanduser(root)):  # noqa: PTH111, PTH112 - text stays text
        return [f"{root}@{name}" for name in _step_names(root) if name.startswith(begun)]
    folder, _, start = incomplete.rpartition("/")
    base = "/" if incomplete.startswith("/") and not folder else folder
    try:
        with os.scandir(os.path.expanduser(base) or ".") as entries:  # noqa: PTH111 - text stays text
            found = [(e.name, e.is_dir()) for e in entries if e.name.startswith(start)]
    except OSError:
        return []
    prefix = incomplete[: len(incomplete) - len(start)]
    return [
        f"{prefix}{name}{'/' if is_folder else ''}"
        for name, is_folder in sorted(found)
        if start.startswith(".") or not name.startswith(".")
    ]


def _step_names(root: str) -> list[str]:
    """What may stand behind `@`: the numbers of a root's steps, and the newest; nothing without steps."""
    from surgery_cli.store.filesystem.names import step_name

    with os.scandir(os.path.expanduser(root)) as entries:  # noqa: PTH111 - text stays text
        steps = {found.number for e in entries if (found := step_name(e.name)) is not None}
    return [*map(str, sorted(steps)), "latest"] if steps else []


def directory(metavar: str, help: str, parser: Callable[[str], Address]) -> Any:
    """The argument of a command that names a directory; the shell completes it."""
    return typer.Argument(
        metavar=metavar,
        help=help,
        autocompletion=complete_checkpoint,
        show_default=False,
        parser=parser,
    )


class Opened:
    """Beside the type of an argument: the command opens what stands there, or looks whether something does."""


Source = Annotated[
    Address,
    Opened(),
    directory(
        "SRC",
        "The checkpoint to edit; `ROOT@N` is step N of a root, `ROOT@latest` the newest.",
        checkpoint_address,
    ),
]
Destination = Annotated[
    Address, Opened(), directory("DST", "Where the new checkpoint appears.", destination_address)
]
Checkpoint = Annotated[
    Address,
    Opened(),
    directory(
        "CKPT",
        "The checkpoint; `ROOT@N` is step N of a root, `ROOT@latest` the newest.",
        checkpoint_address,
    ),
]
PlanFile = Annotated[
    Address,
    typer.Argument(
        parser=address,
        autocompletion=complete_checkpoint,
        metavar="PLAN",
        help="The plan: .yaml, .toml or .json; `-` is standard input.",
        show_default=False,
    ),
]
OptionalPlanFile = Annotated[
    Address | None,
    typer.Argument(
        parser=address,
        autocompletion=complete_checkpoint,
        metavar="[PLAN]",
        help="The plan: .yaml, .toml or .json; `-` is standard input. Not with `--inverse`.",
        show_default=False,
    ),
]


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """How a command speaks."""

    json: Annotated[bool, setting("Print one JSON document and nothing else.", Group.OUTPUT)] = (
        False
    )
    quiet: Annotated[
        bool,
        setting(
            "Say only, on standard error, what went wrong, was assumed, or was done beyond what was typed; `inspect`"
            " and `plan` show all the same.",
            Group.OUTPUT,
            option="--quiet -q",
        ),
    ] = False
    verbose: Annotated[
        bool, setting("List single leaves.", Group.OUTPUT, option="--verbose -v")
    ] = False
