"""The commands `help` and `version`."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from surgery_cli import __version__
from surgery_cli.cli.options.completion import complete_command

_STANDS_ON: Final = ("orbax-checkpoint", "tensorstore", "jax", "flax", "optax", "numpy")


def show_help(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[COMMAND]",
            help="The command to explain; all of them are listed if left out.",
            autocompletion=complete_command,
            show_default=False,
        ),
    ] = None,
) -> int:
    """Explain a command, or list all of them."""
    above = context.parent
    assert above is not None
    group = above.command
    assert isinstance(group, TyperGroup)
    if name is None:
        typer.echo(group.get_help(above))
        return 0
    _, command, _ = group.resolve_command(above, [name])
    assert command is not None
    typer.echo(command.get_help(typer.Context(command, info_name=name, parent=above)))
    return 0


def version() -> int:
    """Print the version, and those of the libraries that checkpoints are read with."""
    lines = [f"surgery {__version__}"]
    for name in _STANDS_ON:
        try:
            lines.append(f"  {name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"  {name} is not installed")
    typer.echo("\n".join(lines))
    return 0
