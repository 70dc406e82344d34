"""Write docs/options.md from the settings as they are declared: `python docs/make_options.py`."""

import inspect
from pathlib import Path

import typer

from surgery_cli import surgery
from surgery_cli.cli.commands.table import COMMANDS
from surgery_cli.cli.main import app
from surgery_cli.cli.options.parameters import options_of
from surgery_cli.console.arguments import Output
from surgery_cli.probing import ProbeOptions
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import Group
from surgery_cli.settings.limits import Limits
from surgery_cli.settings.run import Options, WritingOptions
from surgery_cli.settings.shared import AbovePlan

PAGE = Path(__file__).with_name("options.md")

ABOVE = """\
# Options

What every command may be told, made by `docs/make_options.py` from the declarations that the commands themselves are
made of; `surgery COMMAND --help` shows the same. The fields of edits stand in [operations](operations.md).

## Every command that plans or writes

`plan`, `apply`, `compact` and every edit take these. In Python they are fields of `surgery.Options`. A plan file says
those that have a key, beside `edits`, `sources`, `slots`, `reshard`, `output` and `vars`; what a command says stands
above it."""

OUTPUT = """\
## How a command speaks, and how much it reads

Every command takes these, but for `operations` and `version` (only `--json`), `schema` and `help` (none)."""


def page() -> str:
    """The reference of all options, as Markdown."""
    lines = [ABOVE, ""]
    for group in Group:
        rows = [
            (
                _typed(option),
                _code(option.name * (option.name in _PLAN)),
                _field(option),
                _meaning(option),
            )
            for option in _options("compact", _of(Options))
            if option.rich_help_panel == group.value
        ]
        if rows:
            head = ("option", "key of a plan", "in Python", "meaning")
            lines += [f"### {group.value}", "", *_table(head, rows)]
    every = _of(Output) | _of(Limits)
    for name in COMMANDS:
        there = {option.name for option in _options(name)}
        shared = set(every)
        for of_runs in (WritingOptions, Options):
            shared |= _of(of_runs) if _of(of_runs) <= there else set()
        own = there - shared
        rows = [(_typed(o), _keyword(name, o), _meaning(o)) for o in _options(name, own)]
        if rows:
            lines += [f"## {name}", "", *_table(("option", "in Python", "meaning"), rows)]
    rows = [(_typed(option), _meaning(option)) for option in _options("inspect", every)]
    lines += [OUTPUT, "", *_table(("option", "meaning"), rows)]
    return "\n".join(lines).rstrip() + "\n"


_PLAN = AbovePlan.__struct_fields__
_GROUP = typer.main.get_command(app)


def _of(kind) -> set[str]:
    """The names of a struct's options."""
    return {option.name for option in options_of(kind)}


def _options(command, names=None):
    """The options of a command, all or those of these names, in the order of its help."""
    order = [group.value for group in Group]
    built = _GROUP.get_command(typer.Context(_GROUP), command)
    found = [p for p in built.params if p.param_type_name == "option"]
    return sorted(
        (p for p in found if names is None or p.name in names),
        key=lambda p: order.index(p.rich_help_panel),
    )


def _field(option) -> str:
    """The field of `surgery.Options` that an option is."""
    is_nested = option.name in CallOptions.__struct_fields__
    return _code(f"probe_options.{option.name}" if is_nested else option.name)


def _keyword(command, option) -> str:
    """What an option is called in Python: a field of ``ProbeOptions``, or a keyword of the use case."""
    if command == "probe" and option.name in ProbeOptions.__struct_fields__:
        return _code(f"ProbeOptions.{option.name}")
    use_case = getattr(surgery, command, None)
    keywords = inspect.signature(use_case).parameters if use_case else ()
    return _code(option.name * (option.name in keywords))


def _typed(option) -> str:
    return ", ".join(
        map(_code, [*option.opts[1:], " ".join(filter(None, [option.opts[0], option.metavar]))])
    )


def _meaning(option) -> str:
    text = option.help or ""
    if option.required:
        return f"{text} Required."
    return f"{text} Default: `{option.default}`." if option.default else text


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head, rows) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    ] + [""]


if __name__ == "__main__":
    PAGE.write_text(page())
