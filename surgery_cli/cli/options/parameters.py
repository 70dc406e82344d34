"""Settings as the options of a command: what Typer reads, and what was given as values again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import inspect as types

from surgery_cli.cli.options.completion import completion_of
from surgery_cli.cli.rendering.spelling import said_in_options
from surgery_cli.console.arguments import Opened
from surgery_cli.inputs.addresses import Address
from surgery_cli.inputs.buckets import STARTS
from surgery_cli.inputs.limits import limits
from surgery_cli.settings.declaration import Group, Setting, settings_of
from surgery_cli.settings.limits import Limits

Command = Callable[..., int]


def with_options(
    command: Command, own: Iterable[inspect.Parameter] = (), *, hidden: Collection[str] = ()
) -> Command:
    """``command`` under the signature that Typer reads; ``own`` are further parameters, help shows no ``hidden`` ones.

    A parameter whose type is a struct of settings becomes the options of its fields; one that is itself a setting
    becomes an option; arguments stay. Whoever has such a struct reads files, and takes `--limit`, too.
    """
    structs, single, arguments = {}, [], []
    for taken in inspect.signature(command, eval_str=True).parameters.values():
        marks = getattr(taken.annotation, "__metadata__", ())
        if isinstance(taken.annotation, type) and issubclass(taken.annotation, msgspec.Struct):
            structs[taken.name] = taken.annotation
        elif any(isinstance(mark, msgspec.Meta) for mark in marks):
            default = () if taken.default is taken.empty else (taken.default,)
            single.append((taken.name, taken.annotation, *default))
        elif taken.kind is not taken.VAR_KEYWORD:
            arguments.append(taken)
    alone = msgspec.defstruct("Alone", single, kw_only=True)

    opened = [
        taken.name
        for taken in arguments
        if any(isinstance(mark, Opened) for mark in getattr(taken.annotation, "__metadata__", ()))
    ]

    def wrapped(**given: Any) -> int:
        limited = limits(_made(Limits, given).limit if structs else {})
        with limited, _asked_ahead([given[name] for name in opened]):
            made = msgspec.structs.asdict(_made(alone, given))
            made |= {name: _made(kind, given) for name, kind in structs.items()}
            return command(**given, **made)

    kinds: list[type[msgspec.Struct]] = [alone, *structs.values(), *([Limits] if structs else [])]
    parameters = [*arguments, *own, *(p for kind in kinds for p in options_of(kind, hidden))]
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def _asked_ahead(places: list[Address]) -> AbstractContextManager[None]:
    """What a command opens in buckets, asked for before the rest of the program is loaded."""
    in_buckets = [text for text in places if text.startswith(STARTS)]
    if not in_buckets:
        return nullcontext()
    from surgery_cli.store.locate.ahead import asked_ahead

    return asked_ahead(in_buckets)


def options_of(
    kind: type[msgspec.Struct], hidden: Collection[str] = ()
) -> Iterator[inspect.Parameter]:
    """The options of a struct of settings and of the structs in it, its own before those that it inherits."""
    from surgery_cli.planning.fields import alternatives_of, fields_of

    for field in sorted(fields_of(kind), key=lambda f: f.attribute not in kind.__annotations__):
        alternatives = alternatives_of(kind, field.name)
        if isinstance(alternatives[0], types.StructType):
            yield from options_of(alternatives[0].cls, hidden)
            continue
        declared = settings_of(kind).get(field.attribute)
        if declared is None:
            continue
        typed: Any = _typed(declared, field.choices, alternatives)
        yield option(
            field.attribute,
            declared.option,
            list[typed] if field.is_list or field.is_mapping else bool if field.is_flag else typed,
            group=declared.group,
            help=field.description,
            required=field.required,
            default=declared.default or (None if field.default in ("", (), {}) else field.default),
            metavar=declared.metavar or "|".join(field.choices) or None,
            autocompletion=completion_of(declared.option, declared.metavar, field.choices),
            parser=declared.parser,
            min=declared.least,
            hidden=field.name in hidden,
        )


def option(
    name: str,
    spelled: str,
    typed: Any,
    *,
    group: Group,
    required: bool,
    default: Any,
    **described: Any,
) -> inspect.Parameter:
    """An option as a parameter that Typer reads."""
    declared = typer.Option(*spelled.split(), rich_help_panel=group.value, **described)
    if required:
        return parameter(name, Annotated[typed, declared])
    annotation = typed if default is False else typed | None
    return parameter(name, Annotated[annotation, declared], default=default)


def parameter(name: str, annotation: Any, **default: Any) -> inspect.Parameter:
    """A parameter of a command, given by its name."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **default)


def _typed(declared: Setting, choices: tuple[str, ...], alternatives: list[types.Type]) -> Any:
    """What Typer makes of each text that is given; text where the setting reads it by itself."""
    if declared.read is not None:
        return str
    if choices:
        return Literal[choices]
    numbers: dict[type[types.Type], type] = {types.IntType: int, types.FloatType: float}
    return next((numbers[type(part)] for part in alternatives if type(part) in numbers), str)


def _made(kind: type[msgspec.Struct], given: dict[str, Any]) -> Any:
    """The struct of what was ``given``, which is taken out of there."""
    from surgery_cli.planning.fields import alternatives_of, fields_of

    values = {}
    for field in fields_of(kind):
        described = alternatives_of(kind, field.name)[0]
        if isinstance(described, types.StructType):
            values[field.attribute] = _made(described.cls, given)
        elif (declared := settings_of(kind).get(field.attribute)) is not None:
            value = given.pop(field.attribute)
            if value is None or value == []:
                continue
            value = tuple(value) if isinstance(value, list) else value
            with said_in_options(kind):
                values[field.attribute] = value if declared.read is None else declared.read(value)
    return kind(**values)
