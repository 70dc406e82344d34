"""The command `surgery`: the list of its commands, and the entry point."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from typer.core import TyperGroup

from surgery_cli import __version__
from surgery_cli.cli import edge
from surgery_cli.cli.commands.table import COMMANDS, command_of, examples_of, function_of
from surgery_cli.cli.options.conversion import convert_directly
from surgery_cli.cli.options.help import GroupedHelp, readable
from surgery_cli.cli.rendering.spelling import first_line
from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.settings.declaration import Group
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.tasks import recipe_for

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter


SHARED: Final = frozenset({Group.HOSTS, Group.MEMORY, Group.CHECK, Group.CALL})
"""What the help of each edit tells by names alone."""


class Commands(TyperGroup):
    """All commands; each is built when it is asked for, so that start-up stays short."""

    def get_help(self, ctx: Context) -> str:
        return readable(super().get_help(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        convert_directly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Context) -> list[str]:
        return [*COMMANDS, *operations()]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            self.commands[cmd_name] = _built(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            self._refuse_mistyped(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _refuse_mistyped(self, ctx: Context, name: str) -> None:
        """Name the recipe of the task that is called so, or the closest command."""
        listing = "`surgery help` lists all of them"
        if Path(name).exists():
            raise PlanError(
                f"there is no command '{name}': a place stands where the command belongs",
                fix=f"write one before it: `{shlex.join(['surgery', 'inspect', name])}`; {listing}",
            )
        if close := nearest(name, self.list_commands(ctx), 1):
            listing = f"did you mean `surgery {close[0]}`? {listing}"
        raise PlanError(
            f"there is no command '{name}'",
            fix=recipe_for(name, "`surgery {}`") or f"{listing}, docs/cookbook.md has tasks",
        )

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        plain = [(name.ljust(width), first_line(function_of(name))) for name in COMMANDS]
        edit = [(name.ljust(width), first_line(kind)) for name, kind in operations().items()]
        with formatter.section("Commands"):
            formatter.write_dl(plain)
        with formatter.section("Edits, as surgery EDIT SRC DST AT... [OPTIONS]"):
            formatter.write_dl(edit)


def _built(name: str) -> Command:
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name, cls=GroupedHelp)(command_of(name))
    built = typer.main.get_command(alone)
    assert isinstance(built, GroupedHelp)
    built.examples = partial(examples_of, name)
    if name in operations():
        built.shared = SHARED
    return built


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # `Commands` does, and says nothing far-fetched
    no_args_is_help=True,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    help="Edit Orbax checkpoints: declarative, copy-on-write, verified.",
    epilog="`surgery help patterns`, `plans`, `policies` or `options` explains these. "
    "Exit codes: 0 done or equal, 1 different or a finding, 2 wrong command or plan, "
    "3 unreadable checkpoint, 4 failed write, 70 a bug, 130 interrupted, 143 terminated.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"surgery {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program with the process's arguments, or with ``arguments``, and exit."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(edge.run_command(typer.main.get_command(app), given))
