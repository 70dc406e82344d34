"""The JSON Schema of a plan file, for editors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from surgery_cli.draft.check import InPolicy
from surgery_cli.inputs.numbers import FRACTION
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.fields import fields_of, shapes_of, takes_numbers
from surgery_cli.planning.plan import SHARED, Plan
from surgery_cli.planning.policies import OWN_KEYS, rule_keys
from surgery_cli.planning.sections import SECTIONS

_VARIABLE: Final = {
    "description": "A variable: from `--set name=value`, else from `vars`.",
    "type": "string",
    "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_.-]*\}$",
}

_FRACTION: Final = {
    "description": "A number as a fraction or a power, variables in it too: `1/3`, `64^-0.5`, `${head_dim}^-0.5`.",
    "type": "string",
    "pattern": rf"^(?:{FRACTION}|.*\$\{{.*)$",
}


def schema(*, kinds: Mapping[str, type[Operation]] | None = None) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a plan file, from the fields of the operations."""
    known = dict(kinds or operations())
    top = {name: _property(Plan, name) for name in SHARED if name != "check"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "surgery plan",
        "description": "Edits of an Orbax checkpoint, applied from first to last.",
        "type": "object",
        "properties": {
            "$schema": {"description": "This schema, for editors.", "type": "string"},
            "vars": {
                "description": "Defaults of variables; `${name}` stands for one.",
                "type": ["object", "null"],
            },
            **top,
            "check": _check(),
            "edits": {
                "description": "The edits, applied from first to last.",
                "type": ["array", "null"],
                "items": _edit(known),
            },
        },
        "additionalProperties": False,
        "$defs": {
            "variable": _VARIABLE,
            "fraction": _FRACTION,
            **msgspec.json.schema_components(list(SECTIONS.values()))[1],
            "rule": _rule(),
            **{name: _operation(kind) for name, kind in known.items()},
        },
    }


def _check() -> dict[str, Any]:
    """The rules of a policy, or the path of its file."""
    described = next(field.description for field in fields_of(Plan) if field.name == "check")
    rules = {"type": "array", "items": {"$ref": "#/$defs/rule"}, "minItems": 1}
    policy = {
        "type": "object",
        "properties": {"rules": rules},
        "required": ["rules"],
        "additionalProperties": False,
    }
    file = {"type": "string", "minLength": 1}
    return {"description": described, "anyOf": [rules, policy, file]}


def _rule() -> dict[str, Any]:
    """A rule of a policy: what `assert` says, and its own keys."""
    kind = operations()["assert"]
    stated = {name: _property(kind, name) for name in rule_keys() if name not in OWN_KEYS}
    own = msgspec.json.schema(InPolicy)["$defs"]["InPolicy"]["properties"]
    return {
        "title": "rule",
        "description": inspect.getdoc(InPolicy) or "",
        "type": "object",
        "properties": {**{name: own[name] for name in OWN_KEYS}, **stated},
        "additionalProperties": False,
    }


def _edit(kinds: Mapping[str, type[Operation]]) -> dict[str, Any]:
    """One edit: `op` decides which definition holds, so that editors complain about that one alone."""
    return {
        "type": "object",
        "properties": {
            "op": {
                "description": "What to do.",
                "oneOf": [
                    {"const": name, "description": _first_line(kind)}
                    for name, kind in kinds.items()
                ],
            }
        },
        "required": ["op"],
        "allOf": [
            {
                "if": {"properties": {"op": {"const": name}}, "required": ["op"]},
                "then": {"$ref": f"#/$defs/{name}"},
            }
            for name in kinds
        ],
    }


def _operation(kind: type[Operation]) -> dict[str, Any]:
    fields = fields_of(kind)
    name = str(kind.__struct_config__.tag)
    found: dict[str, Any] = {
        "title": name,
        "description": inspect.getdoc(kind) or "",
        "type": "object",
        "properties": {
            "op": {"const": name},
            **{f.name: _property(kind, f.name) for f in fields if not f.is_unused},
        },
        "required": ["op", *(f.name for f in fields if f.required)],
        "additionalProperties": False,
    }
    if kind.instead_of_at:
        ways = ("at", *kind.instead_of_at)
        found["anyOf"] = [{"required": [way]} for way in ways]
    return found


def _property(kind: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """A field's schema; a variable may stand wherever something else than any text is asked for."""
    field = next(f for f in fields_of(kind) if f.name == name)
    (found,), _ = msgspec.json.schema_components([shapes_of(kind)[name].annotation])
    if name == "at":
        found = {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ways = found.get("anyOf") or [found]
    for way in ways:
        way.pop("description", None)
        if field.choices and "pattern" in way:
            del way["pattern"]
            way["enum"] = list(field.choices)  # what editors offer
    if takes_numbers(kind, name) and {"type": "string"} not in ways:
        ways = [*ways, {"$ref": "#/$defs/fraction"}]
    if {"type": "string"} not in ways:
        ways = [*ways, {"$ref": "#/$defs/variable"}]
    described = {"description": field.description} if field.description else {}
    default = {} if field.required or field.default is None else {"default": _plain(field.default)}
    return {**described, **(ways[0] if len(ways) == 1 else {"anyOf": ways}), **default}


def _plain(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _first_line(kind: type[Operation]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]
