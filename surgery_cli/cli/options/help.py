"""How the help of a command looks: its arguments, its options in named groups, an example."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand

from surgery_cli.cli.options.conversion import convert_directly
from surgery_cli.console.printable import legible
from surgery_cli.settings.declaration import Group

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


def readable(text: str) -> str:
    """The help as standard output can show it: Typer writes UTF-8, whatever the locale has."""
    return legible(text, sys.stdout.encoding or "utf-8")


class GroupedHelp(TyperCommand):
    """A command whose help says arguments as the documentation does, options by group, and an example."""

    examples: Callable[[], tuple[str, ...]]
    """Made only when they are shown: an edit's are read from YAML."""

    def get_help(self, ctx: Context) -> str:
        return readable(super().get_help(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        convert_directly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return [*(str(p.metavar) for p in self._arguments(ctx)), "[OPTIONS]"]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        arguments = [(str(p.metavar), p.help or "") for p in self._arguments(ctx)]
        groups = list(self._groups(ctx))
        widest = min(30, formatter.width // 3)  # a longer name has a line to itself
        width = max((len(n) for _, rows in groups for n, _ in rows if len(n) <= widest), default=0)
        for title, rows in [("Arguments", arguments), *groups]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], width)

    def _groups(self, ctx: Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """The options of every group, in the order of the groups; `--help` is the last one."""
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        for group in Group:
            own = [
                p
                for p in options
                if (getattr(p, "rich_help_panel", None) or Group.OUTPUT.value) == group.value
            ]
            yield group.value, [row for p in own if (row := p.get_help_record(ctx)) is not None]

    def _arguments(self, ctx: Context) -> list[TyperArgument]:
        return [p for p in self.get_params(ctx) if isinstance(p, TyperArgument)]

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples():
                formatter.write(f"  {example}\n")
