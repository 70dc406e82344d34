"""How the help of a command looks: its arguments, its options in named groups, an example."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from typer.core import TyperArgument, TyperCommand

from surgery_cli.cli.options.conversion import convert_directly
from surgery_cli.console.printable import legible
from surgery_cli.settings.declaration import Group
from surgery_cli.words.topics import OPTIONS, TOPIC_OF, TOPICS, Topic

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


_GLUE: Final = "\N{NO-BREAK SPACE}"
"""Between an option and its value, until lines are broken."""


def readable(text: str) -> str:
    """The help as standard output can show it: Typer writes UTF-8, whatever the locale has."""
    return legible(text, sys.stdout.encoding or "utf-8")


class GroupedHelp(TyperCommand):
    """A command whose help says arguments as the documentation does, options by group, and an example."""

    examples: Callable[[], tuple[str, ...]]
    """Made only when they are shown: an edit's are read from YAML."""

    shared: frozenset[Group] = frozenset()
    """Groups of which only the names are told, as other commands have the same."""

    def get_help(self, ctx: Context) -> str:
        return readable(super().get_help(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        convert_directly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return [*(str(p.metavar) for p in self._arguments(ctx)), "[OPTIONS]"]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        arguments = [(str(p.metavar), p.help or "") for p in self._arguments(ctx)]
        groups = [
            (group.value, rows) for group, rows in self._groups(ctx) if group not in self.shared
        ]
        widest = min(30, formatter.width // 3)  # a longer name has a line to itself
        width = max((len(n) for _, rows in groups for n, _ in rows if len(n) <= widest), default=0)
        for title, rows in [("Arguments", arguments), *groups]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], width)

        if not self.shared:
            return
        named = [(group, rows) for group, rows in self._groups(ctx) if group in self.shared]
        with formatter.section(f"Shared by edits, as `surgery help {OPTIONS}` explains"):
            for group, rows in named:
                names = ", ".join(name.replace(" ", _GLUE) for name, _ in rows)
                text = f"{group.value}: {names}"
                for line in wrap(text, formatter.width - 4, break_on_hyphens=False):
                    formatter.write(f"  {line.replace(_GLUE, ' ')}\n")

    def help_of_shared(self, ctx: Context) -> str:
        """The groups that its own help only names, in full."""
        formatter = ctx.make_formatter()
        for group, rows in self._groups(ctx):
            if group in self.shared:
                with formatter.section(group.value):
                    formatter.write_dl(rows)
        return readable(formatter.getvalue().strip())

    def _groups(self, ctx: Context) -> Iterator[tuple[Group, list[tuple[str, str]]]]:
        """The options of every group, in the order of the groups; `--help` is the last one."""
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        for group in Group:
            own = [
                p
                for p in options
                if (getattr(p, "rich_help_panel", None) or Group.OUTPUT.value) == group.value
            ]
            yield group, [row for p in own if (row := p.get_help_record(ctx)) is not None]

    def _arguments(self, ctx: Context) -> list[TyperArgument]:
        return [p for p in self.get_params(ctx) if isinstance(p, TyperArgument)]

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples():
                formatter.write(f"  {example}\n")
        if (name := TOPIC_OF.get(self.name or "")) is not None:
            _write_file(TOPICS[name], formatter)
            formatter.write(f"  `surgery help {name}` says more.\n")


def write_topic(topic: Topic, formatter: HelpFormatter) -> None:
    """A topic as text."""
    formatter.write_text(topic.begin)
    if topic.rows:
        formatter.write("\n")
        formatter.write_dl([(left.replace("`", ""), right) for left, right in topic.rows])
    if topic.file:
        _write_file(topic, formatter)
    formatter.write("\n")
    for line in topic.end:
        formatter.write_text(line)


def _write_file(topic: Topic, formatter: HelpFormatter) -> None:
    with formatter.section(topic.file):
        for line in topic.example.splitlines():
            formatter.write(f"  {line}\n")
