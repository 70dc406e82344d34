"""Reading a plan file: every problem in it at once, each with its file, line and field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from surgery_cli.errors import PlanError, Problem
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.fields import fields_of
from surgery_cli.planning.linted import plan_problems
from surgery_cli.planning.placed_edits import Place, built
from surgery_cli.planning.plan import (
    MAPPINGS,
    SHARED,
    Plan,
    PolicyRule,
    absolute,
    with_absolute_places,
)
from surgery_cli.planning.plan_files import (
    STANDARD_INPUT,
    file_text,
    format_of,
    parse,
    refuse_no_mapping,
    standard_input,
)
from surgery_cli.planning.policies import read_policy, read_rules
from surgery_cli.planning.recorded_plans import beside_plan, is_record, plan_in_record
from surgery_cli.planning.sections import SECTIONS, misfit_in, read_section
from surgery_cli.planning.text import PlanText, nearest_fix, shown, text_of_value
from surgery_cli.planning.values import Misfit, converted
from surgery_cli.planning.variables import Variables
from surgery_cli.tree.nested import Position
from surgery_cli.words.tasks import recipe_for

TOP_LEVEL: Final = ("edits", *SHARED, "vars", "$schema")
"""The keys of a plan file; `$schema` is there for editors."""

Kinds = Mapping[str, type[Operation]]


def read_plan(
    path_or_dash: str,
    *,
    settings: Mapping[str, str] = {},
    stdin: TextIO | None = None,
    kinds: Kinds | None = None,
    content: Callable[[Path], bytes] = Path.read_bytes,
    is_linted: bool = False,
    name: str = STANDARD_INPUT,
) -> Plan:
    """The plan in a file, its format told by the suffix; `-` reads YAML (or JSON) from standard input.

    A record (`surgery.json`) is the plan of the run that it is of, and takes no settings.

    Args:
        path_or_dash: `.yaml`, `.yml`, `.toml`, `.json`, or `-`.
        settings: What fills `${name}` before `vars:` does; values are read as YAML reads unquoted text.
        stdin: What `-` reads; standard input by default.
        kinds: The operations by name; by default those of the table.
        content: What reads the file; of those in buckets, `store.filesystem.small_files.read_anew`.
        is_linted: Variables may be left open, and those that nothing uses are a problem.
        name: What messages call what `-` reads.

    Raises:
        PlanError: the file cannot be read, or says something that a plan cannot mean; all problems at once.
            Nothing in it, or `{}`: what wrote it may have failed. A copy without edits is `edits: []`.
    """
    if path_or_dash == "-":
        raw = standard_input(stdin or sys.stdin, name)
        text = parse(raw, "YAML", name)
        directory = str(Path.cwd())
    else:
        path = path_at(address(path_or_dash))
        raw = file_text(path, content)
        text = parse(raw, format_of(path), str(path))
        directory = str(path.parent.absolute())
    if is_record(text.value):
        return _recorded(text, raw, settings, kinds or operations())
    refuse_no_mapping(text)
    variables = Variables(text, settings, is_linted=is_linted)
    return _filled(text, variables, directory, kinds or operations(), content)


def plan_of_value(value: Mapping[str, Any], *, settings: Mapping[str, str] = {}) -> Plan:
    """The plan that a program has put together, as a plan file would say it. Relative paths are relative to here.

    Raises:
        PlanError: it says something that a plan cannot mean; all problems at once.
    """
    text = text_of_value(value)
    refuse_no_mapping(text)
    return _filled(text, Variables(text, settings), str(Path.cwd()), operations())


def _filled(
    text: PlanText,
    variables: Variables,
    directory: str,
    kinds: Kinds,
    content: Callable[[Path], bytes] = Path.read_bytes,
) -> Plan:
    """The plan of a mapping, its variables filled in."""
    filled = variables.filled()
    reader = _Reader(text, directory, kinds, variables.unfilled, content, variables.is_linted)
    reader.problems += variables.problems
    return msgspec.structs.replace(reader.plan(filled), variables=variables.values)


def _recorded(text: PlanText, raw: str, settings: Mapping[str, str], kinds: Kinds) -> Plan:
    """The plan of a record: its paths are absolute, and what looks like a variable is text."""
    found = plan_in_record(text, raw, settings)
    plan = _Reader(found, "/", kinds, frozenset()).plan(found.value)
    return msgspec.structs.replace(plan, **beside_plan(text.value))


def plan_from_document(document: Mapping[str, Any], *, kinds: Kinds | None = None) -> Plan:
    """The plan of a record, from what `Plan.document` gave. Raises as `read_plan`."""
    text = PlanText(value=document, file="surgery.json")
    return _Reader(text, "/", kinds or operations(), frozenset()).plan(document)


class _Reader:
    """Turns a filled document into a Plan, gathering problems on the way."""

    def __init__(
        self,
        text: PlanText,
        directory: str,
        kinds: Kinds,
        unfilled: set[Position] | frozenset[Position],
        content: Callable[[Path], bytes] = Path.read_bytes,
        is_linted: bool = False,
    ) -> None:
        self.text = text
        self.is_linted = is_linted
        self.content = content
        self.directory = directory
        self.kinds = kinds
        self.unfilled = unfilled
        self.problems: list[Problem] = []

    def plan(self, document: Mapping[str, Any]) -> Plan:
        for key in document:
            if key not in TOP_LEVEL:
                self.refuse((key,), f"a plan has no key `{key}`", fix=self._key_fix(key))
        shared = {
            name: self._shared(name, document[name])
            for name in SHARED
            if name in document and name != "check"
        }
        sources = self._sources(shared.pop("sources", {}))
        if "check" in document:
            shared["check"] = self._check(document["check"], sources)
        if shared.get("reshard") is not None:
            place = partial(self._place, ("reshard",))
            shared["reshard"] = with_absolute_places(shared["reshard"], sources, place)
        given = document.get("edits")
        if given is not None and not isinstance(given, list):
            self.refuse(
                ("edits",),
                f"`edits` must be a list of edits, not {shown(given)}",
                fix="begin each edit with `- op:`",
            )
            given = None
        read = [self._edit(at, edit, sources) for at, edit in enumerate(given or [])]
        if self.is_linted:
            self.problems += plan_problems(self.text, document, self.unfilled)
        if self.problems:
            raise PlanError.of(sorted(self.problems, key=lambda p: (p.line or 0, p.column or 0)))
        return Plan(
            edits=tuple(edit for edit in read if edit is not None),
            sources=sources,
            origins=tuple(
                self._at("edits", at).origin(at + 1, edit) for at, edit in enumerate(given or [])
            ),
            **shared,
        )

    def refuse(self, position: Position, what: str, *, why: str = "", fix: str = "") -> None:
        field = next((str(key) for key in reversed(position) if isinstance(key, str)), None)
        self.problems.append(self.text.problem(position, what, why=why, fix=fix, field=field))

    def _key_fix(self, key: str) -> str:
        if any(key == field.name for kind in self.kinds.values() for field in fields_of(kind)):
            return f"`{key}` belongs into an edit: indent it below `- op:`"
        return nearest_fix(key, list(TOP_LEVEL), otherwise=f"keys are {', '.join(TOP_LEVEL[:-1])}")

    def _shared(self, name: str, value: Any) -> Any:
        if (name,) in self.unfilled:
            return None
        if value is None and name in MAPPINGS:
            return {}
        if name in SECTIONS and isinstance(value, dict):
            section, problems = read_section(self.text, name, value, self.unfilled)
            self.problems += problems
            return section
        found = self._converted(Plan, name, value, (name,))
        return {} if found is None and name in MAPPINGS else found

    def _converted(
        self, kind: type[msgspec.Struct], name: str, value: Any, position: Position
    ) -> Any:
        """The value as its field holds it; None where it does not take it, which is a problem."""
        try:
            return converted(kind, name, value)
        except Misfit as misfit:
            self.problems.append(misfit_in(self.text, misfit, position))
            return None

    def _sources(self, given: Mapping[str, str]) -> dict[str, str]:
        for name, text in given.items():
            if not name or not text:
                self.refuse(
                    ("sources", name),
                    f"the source `{name}` has no {'path' if name else 'name'}",
                    why=f"`{name}: {shown(text)}`",
                    fix="`sources: {donor: runs/big@1000}`",
                )
        return {name: self._place(("sources", name), text) for name, text in given.items()}

    def _place(self, position: Position, value: str, *, is_local: bool = False) -> str:
        """A path made absolute; an address of elsewhere is a problem."""
        try:
            return absolute(value, self.directory, is_local=is_local)
        except PlanError as error:
            for problem in error.problems:
                self.refuse(position, problem.what, why=problem.why, fix=problem.fix)
            return value

    def _check(self, given: Any, sources: Mapping[str, str]) -> tuple[PolicyRule, ...]:
        """The rules of the policy that is given, or stands in the file that is named."""
        place = self._at("check")._replace(sources=sources)
        if isinstance(given, str) and not place.is_unfilled:
            try:
                return read_policy(self._place(("check",), given), content=self.content)
            except PlanError as error:
                self.problems += error.problems
                return ()
        rules, problems = read_rules(place, given)
        self.problems += problems
        return rules

    def _at(self, *position: int | str) -> Place:
        return Place(self.text, position, self.directory, self.unfilled, is_linted=self.is_linted)

    def _edit(self, at: int, values: Any, sources: Mapping[str, str]) -> Operation | None:
        place = self._at("edits", at)._replace(sources=sources)
        here = place.position
        if place.is_unfilled or place.within("op").is_unfilled:
            return None
        if not isinstance(values, dict):
            self.refuse(
                here,
                f"edit {at + 1} must be a mapping, not {shown(values)}",
                fix="`- op: rescale`, then its fields",
            )
            return None
        name = values.get("op")
        if not isinstance(name, str) or name not in self.kinds:
            self._refuse_operation(here, name, is_given="op" in values)
            return None
        kind = self.kinds[name]
        fields = {key: value for key, value in values.items() if key != "op"}
        edit, problems = built(place, kind, fields, why=f"in edit {at + 1} (`{name}`)")
        self.problems += problems
        return edit

    def _refuse_operation(self, here: Position, name: Any, *, is_given: bool) -> None:
        number = here[1] + 1 if isinstance(here[1], int) else here[1]
        every = f"operations are {', '.join(self.kinds)}"
        if not is_given:
            self.refuse(here, f"edit {number} does not say what to do: `op` is missing", fix=every)
        elif isinstance(name, str):
            fix = recipe_for(name) or nearest_fix(name, list(self.kinds), otherwise=every)
            self.refuse(
                (*here, "op"), f"unknown operation '{name}'", why=f"in edit {number}", fix=fix
            )
        else:
            self.refuse(
                (*here, "op"),
                f"`op` must be the name of an operation, not {shown(name)}",
                why=f"in edit {number}",
                fix=every,
            )
