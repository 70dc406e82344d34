"""Fields that every operation has, and that would have no effect in some: those refuse them, and help names none."""

from __future__ import annotations

from typing import Any, Final

import pytest

from surgery_cli.cli.rendering.operations import described
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of, operation_from_options
from surgery_cli.planning.command_line import option_name
from surgery_cli.planning.schema import schema
from surgery_cli.planning.yaml_text import parse_yaml

SAID: Final[dict[str, Any]] = {
    "except": "params/x",
    "where_dtype": "floating",
    "where_ndim": 2,
    "expect": 3,
    "optional": True,
    "optimizer": "reset",
}


def with_field(kind: type[Operation], name: str) -> Operation:
    """The operation's own example, with one of the fields that all have."""
    value = parse_yaml(kind.example, "example").value
    entry = dict(value[0] if isinstance(value, list) else value)
    entry.pop("op")
    entry.pop(name, None)
    return operation_from_options(str(kind.__struct_config__.tag), {**entry, name: SAID[name]})


def refuses(kind: type[Operation], name: str) -> str:
    """Why the operation refuses the field; nothing if it takes it, or finds fault with the field's value."""
    try:
        with_field(kind, name).check_values()
    except PlanError as error:
        [problem] = error.problems
        return problem.why if f"takes no `{name}`" in problem.what else ""
    return ""


@pytest.mark.parametrize("name", operations())
def test_what_has_no_effect_is_refused_and_nothing_else(name: str) -> None:
    kind = operations()[name]
    common = {f.name for f in fields_of(kind) if f.is_common} - {"at", "twins", "note"}
    assert common == set(SAID)
    refused = {field: why for field in SAID if (why := refuses(kind, field))}
    assert refused == kind.unused_fields


@pytest.mark.parametrize("name", operations())
def test_schema_and_reference_and_help_name_no_field_that_is_refused(name: str, surgery) -> None:
    kind = operations()[name]
    in_schema = set(schema()["$defs"][name]["properties"])
    [entry] = described(name)
    listed = {field.name for field in entry.fields}
    helped = surgery(name, "--help").out.split()
    options = {f.name: option_name(f) for f in fields_of(kind)}
    for field in SAID:
        is_told = field not in kind.unused_fields
        assert (field in in_schema) is (field in listed) is is_told
        assert (options[field] in helped) is is_told, options[field]
