"""One command per operation, made from the operation's own fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from surgery_cli.cli import options
from surgery_cli.cli.completion import complete_leaf
from surgery_cli.cli.option_groups import with_parameters
from surgery_cli.cli.option_values import settings_of
from surgery_cli.cli.options import Output
from surgery_cli.cli.rendering.spelling import in_options, option_name, said_in_options
from surgery_cli.operations.table import operations

if TYPE_CHECKING:
    from surgery_cli.plan import Field
    from surgery_cli.surgery import Options

SHARED_WITH_PLANS: Final = frozenset({"optimizer", "seed"})
"""Fields whose option every writing command has; an edit of its own takes the same value."""

_PREFIX: Final = "field_"


@cache
def edit_command(name: str) -> Callable[..., int]:
    """The command of the operation ``name``, under the signature that Typer reads."""
    kind = operations()[name]
    from surgery_cli.plan import fields_of

    fields = {_PREFIX + f.attribute: f for f in fields_of(kind) if f.name not in SHARED_WITH_PLANS}

    def command(
        *,
        source: str,
        destination: str,
        set: list[str] | None,
        dry_run: bool,
        draft: Options,
        output: Output,
        **given: Any,
    ) -> int:
        from surgery_cli.cli.commands import run_plan
        from surgery_cli.plan import operation_from_options, plan_of

        values = {fields[key].name: value for key, value in given.items() if value is not False}
        if "optimizer" in {f.name for f in fields_of(kind)}:
            values["optimizer"] = draft.optimizer
        settings = settings_of(set)
        with said_in_options(kind):
            plan = plan_of([operation_from_options(name, values, settings=settings)])
            return run_plan(
                source,
                destination,
                plan,
                draft,
                output,
                dry_run=dry_run,
                reworded=lambda text: in_options(text, kind),
            )

    command.__name__ = name
    command.__doc__ = inspect.getdoc(kind)
    own = [
        _parameter("source", options.Source),
        _parameter("destination", options.Destination),
        *(_field_parameter(key, field) for key, field in fields.items()),
        _parameter("set", options.Settings, default=None),
        _parameter("dry_run", options.DryRun, default=False),
    ]
    return with_parameters(command, own, {"draft": options.drafting, "output": options.output})


def _parameter(name: str, annotation: Any, **default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **default)


def _field_parameter(key: str, field: Field) -> inspect.Parameter:
    if field.name == "at":
        return _at_parameter(key, field)
    repeats = field.is_mapping or field.is_list
    kind: Any = bool if field.is_flag else (list[str] if repeats else str)
    declared = typer.Option(
        option_name(field),
        metavar=None if field.is_flag else _metavar(field),
        help=_help(field),
        show_default=False,
    )
    if field.required:
        return _parameter(key, Annotated[kind, declared])
    default = False if field.is_flag else None
    annotation = kind if field.is_flag else kind | None
    return _parameter(key, Annotated[annotation, declared], default=default)


def _at_parameter(key: str, field: Field) -> inspect.Parameter:
    declared = typer.Argument(
        metavar="AT..." if field.required else "[AT]...",
        help=field.description,
        autocompletion=complete_leaf,
        show_default=False,
    )
    if field.required:
        return _parameter(key, Annotated[list[str], declared])
    return _parameter(key, Annotated[list[str] | None, declared], default=None)


def _metavar(field: Field) -> str:
    if field.choices:
        return "|".join(field.choices)
    if field.is_mapping:
        return "OLD=NEW"
    text = field.type_text
    if field.is_list and "number" in text:
        return "N,..."
    if "number" in text and "text" in text:
        return "VALUE"
    if "whole number" in text:
        return "N"
    return "X" if "number" in text else "TEXT"


def _help(field: Field) -> str:
    text = field.description
    if field.default not in (None, (), "", False, {}):
        text = f"{text} [default: {field.default}]"
    return f"{text} (repeatable)" if field.is_mapping or field.name == "except" else text
