"""An operation from what was typed on the command line: the fields of its struct, read from text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import inspect as types

from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.edits import build
from surgery_cli.planning.fields import LISTS, alternatives, alternatives_of, fields_of
from surgery_cli.planning.text import nearest_fix
from surgery_cli.planning.variables import filled_options
from surgery_cli.planning.yaml_text import scalar
from surgery_cli.words.tasks import recipe_for

_NUMBERS: Final = (types.IntType, types.FloatType)
_NOT_FINITE: Final = {"nan": ".nan", "inf": ".inf", "+inf": ".inf", "-inf": "-.inf"}
_IS_ONE_LIST: Final = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]")
_PARTS: Final = re.compile(r"\[[^\[\]]*\]|[^,\s]+")
"""The items of a list of numbers, of which some may be lists."""


def operation_from_options(
    name: str,
    fields: Mapping[str, Any],
    *,
    settings: Mapping[str, str] = {},
    kinds: Mapping[str, type[Operation]] | None = None,
) -> Operation:
    """The operation ``name`` from option values: text, lists of text (an option that was repeated), flags.

    What was not given (None, an empty list) is left out. Text becomes what the field holds: a number where one is
    allowed and the text reads as one (`0`; `./0` stays text), else text; numbers of a list are parted by commas;
    mappings are `name=value`. Keys may be written as in plans (`where_dtype`) or as options (`where-dtype`).
    ``settings`` fill `${name}` in any text, before it is read.

    Raises:
        PlanError: everything that is wrong with them; ``field`` is the option's name.
    """
    known = kinds or operations()
    if name not in known:
        raise PlanError(
            f"unknown operation '{name}'",
            fix=recipe_for(name)
            or nearest_fix(name, list(known), otherwise="`surgery operations` lists them"),
            field="op",
        )
    kind = known[name]
    names = {f.attribute: f.name for f in fields_of(kind)}
    values: dict[str, Any] = {}
    for key, value in filled_options(fields, settings).items():
        if value is None or (isinstance(value, list | tuple) and not value):
            continue
        plain = key.replace("-", "_")
        field = names.get(plain, plain)
        is_known = field in names.values()
        values[field] = _read(value, alternatives_of(kind, field), field) if is_known else value
    operation, faults = build(kind, values)
    if operation is None:
        raise PlanError.of(fault.problem for fault in faults)
    return operation


def _read(value: Any, parts: Sequence[types.Type], field: str) -> Any:
    """What was typed, as plain values of a plan."""
    lists = [part for part in parts if isinstance(part, LISTS)]
    mappings = [part for part in parts if isinstance(part, types.DictType)]
    if isinstance(value, list | tuple):
        texts = list(value)
        if mappings and all(isinstance(text, str) for text in texts):
            return _mapping(texts, alternatives(mappings[0].value_type), field)
        if lists:
            items = [item for text in texts for item in _items(text, lists[0])]
            return items[0] if len(items) == 1 and len(parts) > len(lists) else items
        return _read(texts[-1], parts, field) if len(texts) == 1 else texts
    if not isinstance(value, str):
        return [value] if lists and len(parts) == len(lists) else value
    if mappings and "=" in value:
        return _mapping([value], alternatives(mappings[0].value_type), field)
    if lists and _holds_numbers(lists[0]) and ("," in value or len(parts) == len(lists)):
        return _items(value, lists[0])
    read = _scalar(value, parts)
    return [read] if lists and len(parts) == len(lists) else read


def _items(text: Any, part: types.Type) -> list[Any]:
    """The items that one option gives to a list: commas part numbers, and lists of them in brackets, and no texts."""
    if not isinstance(text, str) or not _holds_numbers(part):
        return [text]
    items = _item_types(part)
    inner = next((item for item in items if isinstance(item, LISTS)), None)
    if inner is None:
        return [
            _scalar(item.strip(), items) for item in text.strip("[]() ").split(",") if item.strip()
        ]
    text = text.strip()
    parts = _PARTS.findall(text[1:-1] if _IS_ONE_LIST.fullmatch(text) else text)
    return [_items(one, inner) if one.startswith("[") else _scalar(one, items) for one in parts]


def _mapping(texts: Sequence[str], parts: Sequence[types.Type], field: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise PlanError(
                f"`{field}` takes `name=value`, not '{text}'",
                fix="write both sides of `=`",
                field=field,
            )
        if key in found:
            raise PlanError(
                f"`{field}` gives `{key}` twice",
                why=f"'{found[key]}' and '{value}'",
                fix="keep one of them",
                field=field,
            )
        found[key] = _scalar(value, parts)
    return found


def _scalar(text: str, parts: Sequence[types.Type]) -> Any:
    """``text`` as a number or truth value where one is allowed and it reads as one; else as it is."""
    read = scalar(_NOT_FINITE.get(text.lower(), text))
    if any(isinstance(part, types.AnyType) for part in parts):
        return read
    if isinstance(read, bool):
        return read if any(isinstance(part, types.BoolType) for part in parts) else text
    if isinstance(read, int | float) and any(isinstance(part, _NUMBERS) for part in parts):
        return read
    return text


def _item_types(part: types.Type) -> list[types.Type]:
    if isinstance(part, types.VarTupleType | types.ListType):
        return alternatives(part.item_type)
    return list(part.item_types) if isinstance(part, types.TupleType) else []


def _holds_numbers(part: types.Type) -> bool:
    return any(isinstance(item, _NUMBERS) for item in _item_types(part))
