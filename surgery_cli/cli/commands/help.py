"""The commands `help` and `version`."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from surgery_cli import __version__
from surgery_cli.cli.options.completion import complete_topic
from surgery_cli.cli.options.help import GroupedHelp, readable, write_topic
from surgery_cli.console.printing import print_json
from surgery_cli.document import Versions
from surgery_cli.operations.table import operations
from surgery_cli.settings.declaration import Group, setting
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


def version(
    *,
    json: Annotated[bool, setting("Print one JSON document.", Group.OUTPUT)] = False,
) -> int:
    """Print the version, and those of the libraries that checkpoints are read with."""
    found = Versions(version=__version__, libraries={name: _installed(name) for name in _STANDS_ON})
    if json:
        print_json(found)
        return 0
    lines = [f"surgery {found.version}"]
    lines += [f"  {name} {of or 'is not installed'}" for name, of in found.libraries.items()]
    typer.echo("\n".join(lines))
    return 0


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
