"""The commands `help` and `version`."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from surgery_cli import __version__
from surgery_cli.cli.options.completion import complete_topic
from surgery_cli.cli.options.help import GroupedHelp, readable, write_topic
from surgery_cli.operations.table import operations
from surgery_cli.words.topics import OPTIONS, TOPICS

_STANDS_ON: Final = ("orbax-checkpoint", "tensorstore", "jax", "flax", "optax", "numpy")


def show_help(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[COMMAND]",
            help="What to explain: a command, or patterns, plans, policies, options; lists commands if left out.",
            autocompletion=complete_topic,
            show_default=False,
        ),
    ] = None,
) -> int:
    """Explain a command, patterns, plans, policies or what options edits share; or list all commands."""
    above = context.parent
    assert above is not None
    group = above.command
    assert isinstance(group, TyperGroup)
    if name is None:
        typer.echo(group.get_help(above))
        return 0
    if name in TOPICS:
        formatter = context.make_formatter()
        write_topic(TOPICS[name], formatter)
        typer.echo(readable(formatter.getvalue().rstrip()))
        return 0
    if name == OPTIONS:
        edit = group.get_command(above, next(iter(operations())))
        assert isinstance(edit, GroupedHelp)
        typer.echo(edit.help_of_shared(context))
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
