"""What `operations` prints: every operation, its fields, one example each."""

from __future__ import annotations

import inspect

from surgery_cli.cli.rendering.spelling import first_line
from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.document import DescribedField, DescribedOperation
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning import Field, fields_of
from surgery_cli.planning.command_line import example_command, option_name
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.tasks import recipe_for


def described(name: str | None) -> list[DescribedOperation]:
    """Every operation, or the one of that name, in words.

    Raises:
        PlanError: there is no such operation.
    """
    known = operations()
    if name is not None and name not in known:
        close = nearest(name, known, 1)
        raise PlanError(
            f"there is no operation '{name}'",
            why=f"the nearest is '{close[0]}'" if close else "",
            fix=recipe_for(name) or "`surgery operations` lists them, docs/cookbook.md has tasks",
        )
    return [_described(n, kind) for n, kind in known.items() if name in (None, n)]


def _described(name: str, kind: type[Operation]) -> DescribedOperation:
    return DescribedOperation(
        name=name,
        summary=first_line(kind),
        description=inspect.getdoc(kind) or "",
        fields=[_field(field) for field in fields_of(kind) if not field.is_unused],
        example=kind.example,
        command=example_command(kind),
    )


def _field(field: Field) -> DescribedField:
    return DescribedField(
        name=field.name,
        option=None if field.name == "at" else option_name(field),
        type=field.type_text,
        required=field.required,
        default=list(field.default) if isinstance(field.default, tuple) else field.default,
        description=field.description,
        common=field.is_common,
    )


def render(found: list[DescribedOperation], page: Page, *, is_whole: bool) -> None:
    """A line for each operation, or everything about one."""
    if not is_whole:
        page.table([(Cell(entry.name, "strong"), entry.summary) for entry in found])
        page.line()
        page.line(Cell("`surgery operations NAME` shows the fields of one", "faint"))
        return
    for entry in found:
        page.line(Cell(entry.name, "strong"))
        for line in entry.description.splitlines():
            page.line(line, indent=2)
        for title, is_common in (("Fields", False), ("Fields of every operation", True)):
            fields = [field for field in entry.fields if field.common is is_common]
            if fields:
                page.line()
                page.line(Cell(title, "strong"))
                page.table([_row(field) for field in fields], indent=2)
        page.line()
        page.line(Cell("In a plan", "strong"))
        for line in entry.example.splitlines():
            page.line(line, indent=2)
        page.line()
        page.line(Cell("As a command", "strong"))
        page.line(entry.command, indent=2)


def _row(field: DescribedField) -> Row:
    default = field.default
    note = ""
    if field.required:
        note = "required"
    elif default not in (None, [], "", False, {}):
        note = f"default {default}"
    return (Cell(field.name, "strong"), field.type, note, Cell(field.description, "faint"))
