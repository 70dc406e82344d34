"""An edit as it is typed: the options of its fields, and the command that does what stands in a plan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.fields import Field, fields_of
from surgery_cli.planning.yaml_text import parse_yaml


def option_name(field: Field) -> str:
    """The option of a field: `where_dtype` is `--where-dtype`, `moves` is `--move`, once for each.

    The fields' names are the options' names, so that plans and commands are learnt once.
    """
    name = field.name.removesuffix("s") if field.is_mapping else field.name
    return "--" + name.replace("_", "-")


def flag_spelling(field: Field) -> str:
    """How a flag is declared: with its opposite, where leaving it out does not already say false.

    >>> from surgery_cli.operations.ties import Ties
    >>> [flag_spelling(f) for f in fields_of(Ties) if f.name in ("normalize", "integers")]
    ['--normalize/--no-normalize', '--integers']
    """
    name = option_name(field)
    return name if field.default is False else f"{name}/{_opposite(name)}"


def _opposite(name: str) -> str:
    return f"--no-{name.removeprefix('--')}"


def option_words(field: Field, value: Any) -> list[str]:
    """A field with its value, as words of a command line."""
    name = option_name(field)
    if isinstance(value, dict):
        return [word for key, inner in value.items() for word in (name, f"{key}={inner}")]
    if isinstance(value, list):
        if all(isinstance(item, int | float) for item in value):
            return [name, ",".join(map(str, value))]
        return [word for item in value for word in (name, str(item))]
    if isinstance(value, bool):
        return [name] if value else [] if field.default is False else [_opposite(name)]
    return [name, str(value)]


def command_text(edit: Mapping[str, Any], source: str = "SRC") -> str:
    """The command that does an edit of a plan.

    >>> command_text({"op": "cast", "at": "params/[*]", "to": "bfloat16", "where_dtype": "float32"}, "runs/a")
    "surgery cast runs/a DST 'params/[*]' --to bfloat16 --where-dtype float32"
    """
    kind = operations()[edit["op"]]
    known = {field.name: field for field in fields_of(kind)}
    at = edit.get("at", [])
    places = [source, "DST"] if kind.writes else [source]
    words = ["surgery", edit["op"], *places, *(at if isinstance(at, list) else [at])]
    for name, value in edit.items():
        words += option_words(known[name], value) if name not in ("op", "at") else []
    return shlex.join(words)


def example_command(kind: type[Operation]) -> str:
    """The operation's own example as a command line."""
    value = parse_yaml(kind.example, "example").value
    return command_text(value[0] if isinstance(value, list) else value)
