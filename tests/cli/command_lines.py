"""Every argument and option of every command in a line of text, from the commands as they are built."""

from functools import cache

import typer

from surgery_cli.cli.main import app


@cache
def commands():
    """Every command by its name."""
    group = typer.main.get_command(app)
    context = typer.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def spelling(parameter):
    """How a parameter is typed: its names, the form of its value, whether it must be given, what it is without."""
    names = parameter.opts if parameter.param_type_name == "option" else ["argument"]
    says = [*names, "|".join(sorted((parameter.metavar or "").split("|")))]
    says += ["required"] * parameter.required
    says += ["repeatable"] * (parameter.multiple or parameter.nargs == -1)
    says += [
        f"{word} {n}" for word in ("min", "max") if (n := getattr(parameter, word)) is not None
    ]
    if parameter.default not in (None, "") and parameter.default is not False:
        says.append(f"default {parameter.default}")
    return " ".join(filter(None, says))


@cache
def spellings():
    """For every spelling, the commands that have it."""
    found = {}
    for name, command in commands().items():
        for parameter in command.params:
            found.setdefault(spelling(parameter), []).append(name)
    return found
