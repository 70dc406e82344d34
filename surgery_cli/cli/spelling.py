"""How operations are spelled on the command line."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from surgery_cli.operations.base import Operation

if TYPE_CHECKING:
    from surgery_cli.plan import Field


def first_line(kind: object) -> str:
    """The first line of the documentation of an operation or a command."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def option_name(field: Field) -> str:
    """The option of a field: `where_dtype` is `--where-dtype`, `moves` is `--move`, once for each.

    The fields' names are the options' names, so that plans and commands are learnt once.
    """
    name = field.name.removesuffix("s") if field.is_mapping else field.name
    return "--" + name.replace("_", "-")


def example_command(kind: type[Operation]) -> str:
    """The operation's own example as a command line."""
    import shlex

    from surgery_cli.plan import fields_of
    from surgery_cli.plan.yaml_text import parse_yaml

    value = parse_yaml(kind.example, "example").value
    edit = dict(value[0] if isinstance(value, list) else value)
    name = edit.pop("op")
    at = edit.pop("at", [])
    words = ["surgery", name, "SRC", "DST", *(at if isinstance(at, list) else [at])]
    known = {field.name: field for field in fields_of(kind)}
    for key, given in edit.items():
        words += _option_words(known[key], given)
    return shlex.join(words)


def _option_words(field: Field, value: Any) -> list[str]:
    name = option_name(field)
    if isinstance(value, dict):
        return [word for key, inner in value.items() for word in (name, f"{key}={inner}")]
    if isinstance(value, list):
        if all(isinstance(item, int | float) for item in value):
            return [name, ",".join(map(str, value))]
        return [word for item in value for word in (name, str(item))]
    if isinstance(value, bool):
        return [name] if value else []
    return [name, str(value)]
