"""One command per operation, made from the operation's own fields."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from surgery_cli.cli.commands.apply import judge_plan, run_plan
from surgery_cli.cli.options.completion import complete_leaf, completion_of
from surgery_cli.cli.options.parameters import Command, option, parameter, with_options
from surgery_cli.cli.rendering.spelling import in_options, said_in_options
from surgery_cli.console.arguments import (
    Checkpoint,
    Destination,
    Output,
    Source,
    complete_checkpoint,
)
from surgery_cli.console.formats.files import HtmlTo, failures_written, output_files
from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.settings.declaration import Group
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import DryRun, Item, Memory, Step, Variables

if TYPE_CHECKING:
    from surgery_cli.operations.base import Operation
    from surgery_cli.planning import Field, Plan

SHARED_WITH_PLANS: Final = frozenset({"optimizer", "seed"})
"""Fields whose option every writing command has; an edit of its own takes the same value."""

_PREFIX: Final = "field_"
_TO: Final = "to"


@cache
def edit_command(name: str) -> Command:
    """The command of the operation ``name``, under the signature that Typer reads."""
    kind = operations()[name]
    from surgery_cli.planning import fields_of

    fields = {_PREFIX + f.attribute: f for f in fields_of(kind) if f.name not in SHARED_WITH_PLANS}

    def built(given: Mapping[str, Any], settings: Mapping[str, str] | None, **more: Any) -> Plan:
        from surgery_cli.planning import operation_from_options, plan_of

        values = {f.name: given[key] for key, f in fields.items() if _is_said(f, given[key])}
        edit = operation_from_options(name, values | more, settings=settings or {})
        return _exported(plan_of([edit]), edit, given.get(_TO))

    def looking(
        *,
        source: Checkpoint,
        set: Variables = None,
        step: Step = None,
        item: Item = None,
        memory_bytes: Memory = 4 << 30,
        output: Output,
        **given: Any,
    ) -> int:
        with said_in_options(kind):
            options = Options(step=step, item=item, memory_bytes=memory_bytes)
            return judge_plan(source, built(given, set), options, output)

    def writing(
        *,
        source: Source,
        destination: Destination,
        set: Variables = None,
        dry_run: DryRun = False,
        options: Options,
        html: HtmlTo = None,
        output: Output,
        **given: Any,
    ) -> int:
        files = output_files((), html, name, source, destination)
        follows = "optimizer" in {f.name for f in fields_of(kind)}
        more = {"optimizer": options.optimizer} if follows else {}
        with failures_written(files), said_in_options(kind):
            return run_plan(
                source,
                destination,
                lambda: built(given, set, **more),
                options,
                output,
                dry_run=dry_run,
                files=files,
                reworded=lambda text: in_options(text, kind),
            )

    command: Command = writing if kind.writes else looking
    command.__name__ = name
    command.__doc__ = inspect.getdoc(kind)
    places = kind.path_fields
    own = [_parameter(key, f, is_place=f.name in places) for key, f in fields.items()]
    return with_options(command, [*own, *_to(kind)], hidden=kind.unused_fields)


def _is_said(field: Field, value: Any) -> bool:
    """False of a switch that nobody turned on; false is said where leaving it out means something else."""
    return value is not False or field.default is not False


def _to(kind: type[Operation]) -> Iterator[inspect.Parameter]:
    """The option by which what the edit makes is written alone, in a format of other programs."""
    for form in kind.exported_as[:1]:
        told = f"Write what the edit makes alone, as `export --to {form}` does."
        shown: dict[str, Any] = {"group": Group.LAYOUT, "help": told, "metavar": form}
        yield option(_TO, "--to", str, required=False, default=None, **shown)


def _exported(plan: Plan, edit: Operation, to: str | None) -> Plan:
    """The plan whose result is written in the format of other programs that was asked for, if one was.

    Raises:
        PlanError: it is another than that of the operation.
    """
    if to is None:
        return plan
    form, *fields = edit.exported_as
    if to != form:
        raise PlanError(
            f"`--to {to}` is no format that '{edit.name}' writes",
            why=f"what it makes alone is written as {form}",
            fix=f"`--to {form}`; with the edit in a plan, `surgery export SRC DST --plan PLAN --to {to}`",
            field="to",
        )
    said = {field: getattr(edit, field) for field in fields}
    return msgspec.structs.replace(plan, output=msgspec.convert({"format": form, **said}, Export))


def _parameter(key: str, field: Field, *, is_place: bool) -> inspect.Parameter:
    from surgery_cli.planning.command_line import flag_spelling, option_name

    if field.name == "at":
        return _at_parameter(key, field)
    repeats = field.is_mapping or field.is_list
    return option(
        key,
        flag_spelling(field) if field.is_flag else option_name(field),
        bool if field.is_flag else (list[str] if repeats else str),
        group=Group.OPTIMIZER if field.name == "twins" else Group.EDIT,
        help=_help(field),
        required=field.required,
        default=False if field.default is False else None,
        metavar=None if field.is_flag else _metavar(field),
        autocompletion=complete_checkpoint
        if is_place
        else completion_of(option_name(field), "", field.choices),
        hidden=field.is_unused,
    )


def _at_parameter(key: str, field: Field) -> inspect.Parameter:
    declared = typer.Argument(
        metavar="AT..." if field.required else "[AT]...",
        help=f"{field.description} `surgery help patterns` says how.",
        autocompletion=complete_leaf,
        show_default=False,
    )
    if field.required:
        return parameter(key, Annotated[list[str], declared])
    return parameter(key, Annotated[list[str] | None, declared], default=None)


def _metavar(field: Field) -> str:
    if field.choices:
        return "|".join(field.choices)
    if field.is_mapping:
        return "OLD=NEW"
    text = field.type_text
    if field.is_list and "number" in text:
        return "N,..."
    if "number" in text and "text" in text and "text like" not in text:
        return "VALUE"
    if "whole number" in text:
        return "N"
    return "X" if "number" in text else "TEXT"


def _help(field: Field) -> str:
    text = field.description
    if field.default not in (None, (), "", False, {}):
        text = f"{text} [default: {field.default}]"
    return f"{text} (repeatable)" if field.is_mapping or field.name == "except" else text
