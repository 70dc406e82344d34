"""The fields of an operation, read from its struct: for plans, options, docs and the schema alike."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from surgery_cli.operations.base import Operation
from surgery_cli.operations.field_order import own_fields_first
from surgery_cli.words.lists import listed


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field as users see it. ``name`` is the key in plans; ``attribute`` is the struct's own name for it.

    ``default`` is None for required fields. ``choices`` are the only texts allowed, if there are such.
    ``is_list``, ``is_mapping``: may be given several times on the command line. ``is_flag``: true or false only.
    ``is_common``: every operation has it. ``is_unused``: it would have no effect in this one, which refuses it.
    """

    name: str
    attribute: str
    type_text: str
    default: Any
    required: bool
    description: str
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_mapping: bool = False
    is_flag: bool = False
    is_common: bool = False
    is_unused: bool = False


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What msgspec knows of a field: its type as msgspec describes it, and as Python's annotation."""

    described: types.Type
    annotation: Any


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Every field of an operation: its own first, then those of its base classes, then those that all share.

    `at` comes first; it is required unless the operation may do without it.
    """
    common: Collection[str] = ()
    unused: Collection[str] = ()
    if issubclass(kind, Operation):
        common = {f.encode_name for f in msgspec.structs.fields(Operation)}
        unused = kind.unused_fields
    found = [
        _field(
            member,
            shapes_of(kind)[member.encode_name],
            is_common=member.encode_name in common,
            is_unused=member.encode_name in unused,
        )
        for member in own_fields_first(kind)
    ]
    if issubclass(kind, Operation) and not (
        kind.selects_everything_without_at or kind.instead_of_at
    ):
        found = [
            msgspec.structs.replace(f, required=True, default=None) if f.name == "at" else f
            for f in found
        ]
    return tuple(sorted(found, key=lambda f: (f.name != "at", f.is_common)))


@cache
def shapes_of(kind: type[msgspec.Struct]) -> Mapping[str, _Shape]:
    """The type of every field, by its name in the plan."""
    described = typing.cast(types.StructType, types.type_info(kind))
    annotations = typing.get_type_hints(kind, include_extras=True)
    return {
        f.encode_name: _Shape(described=f.type, annotation=annotations[f.name])
        for f in described.fields
    }


def _field(member: Any, shape: _Shape, *, is_common: bool, is_unused: bool) -> Field:
    parts = alternatives(shape.described)
    default = member.default
    if member.default_factory is not msgspec.NODEFAULT:
        default = member.default_factory()
    return Field(
        name=member.encode_name,
        attribute=member.name,
        type_text=_words(shape.described),
        default=None if default is msgspec.NODEFAULT else default,
        required=member.required,
        description=_description(shape.described),
        choices=_literals(shape.annotation)
        or tuple(choice for part in parts for choice in _choices(part)),
        is_list=any(isinstance(p, LISTS) for p in parts),
        is_mapping=any(isinstance(p, types.DictType) for p in parts),
        is_flag=all(isinstance(p, types.BoolType) for p in parts),
        is_common=is_common,
        is_unused=is_unused,
    )


LISTS: Final = (types.VarTupleType, types.ListType, types.TupleType)
_SEQUENCES: Final = (types.VarTupleType, types.ListType)
_CHOICES: Final = re.compile(r"\^\(([\w|.-]+)\)\$")
_BOUNDS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_PLURALS: Final = {"whole number": "whole numbers", "number": "numbers", "text": "texts"}


def alternatives(described: types.Type) -> list[types.Type]:
    """What something of the type may be, apart from left out."""
    while isinstance(described, types.Metadata):
        described = described.type
    if not isinstance(described, types.UnionType):
        return [described]
    return [
        part
        for inner in described.types
        for part in alternatives(inner)
        if not isinstance(part, types.NoneType)
    ]


def alternatives_of(kind: type[msgspec.Struct], name: str) -> list[types.Type]:
    """What the field ``name`` may be, apart from left out."""
    return alternatives(shapes_of(kind)[name].described)


@cache
def takes_numbers(kind: type[msgspec.Struct], name: str) -> bool:
    """True if the field ``name`` may be a number with a fraction, or a list of such."""
    parts = alternatives_of(kind, name)
    items = [
        item
        for part in parts
        if isinstance(part, _SEQUENCES)
        for item in alternatives(part.item_type)
    ]
    return any(isinstance(part, types.FloatType) for part in (*parts, *items))


def _description(described: types.Type) -> str:
    while isinstance(described, types.Metadata):
        text = (described.extra_json_schema or {}).get("description")
        if text:
            return str(text)
        described = described.type
    if isinstance(described, types.UnionType):
        return next(filter(None, map(_description, described.types)), "")
    return ""


def _example(described: types.Type) -> str:
    """The example that a text field gives of its form, if it does."""
    while isinstance(described, types.Metadata):
        examples = (described.extra_json_schema or {}).get("examples")
        if examples:
            return str(examples[0])
        described = described.type
    return ""


def _literals(annotation: Any) -> tuple[str, ...]:
    """The choices of a `Literal` in the order in which they are declared; msgspec sorts them."""
    if typing.get_origin(annotation) is typing.Literal:
        return tuple(map(str, typing.get_args(annotation)))
    return tuple(found for part in typing.get_args(annotation) for found in _literals(part))


def _choices(part: types.Type) -> tuple[str, ...]:
    if isinstance(part, types.LiteralType):
        return tuple(map(str, part.values))
    if isinstance(part, types.EnumType):
        return tuple(str(member.value) for member in part.cls)
    if isinstance(part, types.StrType) and part.pattern:
        found = _CHOICES.fullmatch(part.pattern)
        return tuple(found[1].split("|")) if found else ()
    return ()


def _words(described: types.Type) -> str:
    words = dict.fromkeys(_spelled(described))
    if "number" in words:
        words.pop("whole number", None)
    return listed(words, word="or")


def _spelled(described: types.Type) -> list[str]:
    """The words for everything that a field may be, apart from left out."""
    example = _example(described)
    if example:  # says more than the regular expression that the text must match
        return [f"text like `{example}`"]
    while isinstance(described, types.Metadata):
        described = described.type
    if isinstance(described, types.UnionType):
        inner = (one for one in described.types if not isinstance(one, types.NoneType))
        return [word for one in inner for word in _spelled(one)]
    return [_word(described)]


def _word(part: types.Type) -> str:
    choices = _choices(part)
    if choices:
        return f"one of {', '.join(f'`{c}`' for c in choices)}"
    match part:
        case types.BoolType():
            return "true or false"
        case types.IntType() | types.FloatType():
            bounds = [f"{w} {v}" for k, w in _BOUNDS.items() if (v := getattr(part, k)) is not None]
            return ", ".join(
                ["whole number" if isinstance(part, types.IntType) else "number", *bounds]
            )
        case types.StrType():
            return f"text that matches {part.pattern}" if part.pattern else "text"
        case types.VarTupleType() | types.ListType():
            word = _words(part.item_type)
            return f"list of {_PLURALS.get(word, word)}"
        case types.TupleType():
            return f"list of {len(part.item_types)} values"
        case types.DictType():
            return f"mapping of names to {_words(part.value_type)}"
        case types.AnyType():
            return "anything"
        case types.StructType():
            return "mapping"
    return type(part).__name__.removesuffix("Type").lower()
