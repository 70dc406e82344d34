"""The plan as a value: edits in order, and what they share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from surgery_cli.draft.check import InPolicy
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.inputs.addresses import address, local_address
from surgery_cli.inputs.buckets import STARTS
from surgery_cli.operations.asserting import Assertion
from surgery_cli.operations.base import Operation
from surgery_cli.planning.edits import selection_problems
from surgery_cli.planning.fields import fields_of, takes_numbers
from surgery_cli.planning.numbers import number_or_path
from surgery_cli.planning.text import Mark
from surgery_cli.planning.values import Misfit, converted
from surgery_cli.settings.export import Export
from surgery_cli.settings.reshard import Reshard
from surgery_cli.settings.shared import AbovePlan
from surgery_cli.tree.nested import mapped


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an edit stands in a plan file; all None for an edit that was given as a command.

    ``number`` counts the edits of the plan from 1. ``mark`` says where in it, ``marks`` where its fields
    stand.
    """

    number: int = 1
    file: str | None = None
    mark: Mark | None = None
    marks: dict[str, Mark] = {}

    def line(self, field: str = "") -> int | None:
        """The line of a field, else of the edit."""
        mark = self.marks.get(field, self.mark)
        return None if mark is None else mark.line

    def located(self, problem: Problem) -> Problem:
        """The problem with the place of the field that it names, else of the edit."""
        if self.file is None or problem.file is not None:
            return problem
        mark = self.marks.get(problem.field or "", self.mark)
        place = mark._asdict() if mark is not None and problem.line is None else {}
        return msgspec.structs.replace(problem, file=self.file, **place)


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """What must hold of leaves, as an `assert` says it, and what a policy says of that; ``origin``: where it stands."""

    assertion: Assertion
    policy: InPolicy
    origin: Origin = Origin()

    def document(self) -> dict[str, Any]:
        """The rule as plain values; paths in it are absolute."""
        stated = mapped(msgspec.to_builtins(self.assertion))
        stated.pop("op")
        return {**mapped(msgspec.to_builtins(self.policy)), **stated}


class Plan(AbovePlan, frozen=True, kw_only=True):
    """Edits, applied from first to last, and what they share. ``origins`` has one entry per edit.

    ``variables`` are those with which the plan was filled; a record has none, as it holds what they filled.
    """

    edits: Annotated[
        tuple[Operation, ...], Meta(description="The edits, applied from first to last.")
    ] = ()
    sources: Annotated[
        dict[str, str],
        Meta(
            description="Other checkpoints, by name: `DIRECTORY`, `DIRECTORY@STEP`; relative to the plan file."
        ),
    ] = {}
    fingerprints: Annotated[
        dict[str, str],
        Meta(
            description="What checkpoints and files that the plan names must be, by name: with another fingerprint than"
            " this, nothing is taken from them. `plan --inverse` and records say it."
        ),
    ] = {}
    of_item: Annotated[
        str,
        Meta(
            description="The one item of a step that the plan is about, whose name its paths do without: where several"
            " are chosen, `--item` must choose one. Plans of records say it."
        ),
    ] = ""
    slots: Annotated[
        dict[str, dict[str, Any]],
        Meta(
            description="What trees of slots are, by path (`opt_state/1/0/mu`) or pattern, where nothing else tells."
        ),
    ] = {}
    reshard: Annotated[
        Reshard | None,
        Meta(description="For which topology the result is laid out, once all edits are done."),
    ] = None
    output: Annotated[
        Export | None,
        Meta(
            description="In which format of other programs the result is written, once all edits are done."
        ),
    ] = None
    check: Annotated[
        tuple[PolicyRule, ...],
        Meta(
            description="What must hold of the result before it is committed: rules as in a policy, or the path of one."
        ),
    ] = ()
    origins: tuple[Origin, ...] = ()
    variables: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """The plan as plain values, defaults left out: what `surgery.json` records. Paths in it are absolute."""
        shared = {name: getattr(self, name) for name in SHARED}
        shared["reshard"] = self.reshard and self.reshard.document()
        shared["output"] = self.output and self.output.document()
        shared["check"] = [rule.document() for rule in self.check] or None
        return {
            **{
                name: mapped(value) for name, value in shared.items() if value not in (None, {}, "")
            },
            "edits": [mapped(msgspec.to_builtins(edit)) for edit in self.edits],
        }


SHARED: Final = (
    "sources",
    "fingerprints",
    "of_item",
    *AbovePlan.__struct_fields__,
    "slots",
    "reshard",
    "output",
    "check",
)
"""The fields of a plan beside its edits."""

MAPPINGS: Final = ("sources", "fingerprints", "slots")
"""Those that may be left empty: nothing stands there then."""


def plan_of(edits: Sequence[Operation], **shared: Any) -> Plan:
    """A plan from operations; ``shared`` are the other fields of a plan. Relative paths are relative to here.

    Raises:
        PlanError: an edit does not say which leaves it is about, or its patterns are not valid.
    """
    problems = [problem for edit in edits for problem in selection_problems(edit)]
    raise_all(problems)
    here = str(Path.cwd())
    sources = {name: absolute(text, here) for name, text in shared.pop("sources", {}).items()}
    if isinstance(shared.get("reshard"), Reshard):
        shared["reshard"] = with_absolute_places(
            shared["reshard"], sources, partial(absolute, directory=here)
        )
    return Plan(
        edits=tuple(_with_absolute_paths(edit, here, sources) for edit in edits),
        sources=sources,
        origins=tuple(Origin(number=number) for number in range(1, len(edits) + 1)),
        **shared,
    )


def replaced(plan: Plan, **shared: Any) -> Plan:
    """The plan with other values of ``shared`` fields.

    Raises:
        PlanError: a value is not what its field takes; all of them at once.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, value in shared.items():
        try:
            values[name] = converted(Plan, name, value)
        except Misfit as misfit:
            problems.append(misfit.problem)
    raise_all(problems)
    return msgspec.structs.replace(plan, **values)


def with_absolute_places(
    request: Reshard, sources: Collection[str], place: Callable[..., str]
) -> Reshard:
    """The request with the paths in it as ``place`` makes them absolute; see ``absolute``."""
    like, script = request.like, request.like_init
    if like is not None and like not in sources:
        like = place(like)
    if script is not None:
        script = place(script, is_local=True)
    return msgspec.structs.replace(request, like=like, like_init=script)


def _with_absolute_paths(edit: Operation, directory: str, sources: Collection[str]) -> Operation:
    kind = type(edit)
    attributes = {f.attribute: f.name for f in fields_of(kind) if f.name in kind.path_fields}
    return msgspec.structs.replace(
        edit,
        **{
            attribute: path_value(kind, name, getattr(edit, attribute), directory, sources)
            for attribute, name in attributes.items()
        },
    )


def path_value(
    kind: type[Operation], name: str, value: Any, directory: str, sources: Collection[str]
) -> Any:
    """The value of the field ``name`` that may hold a path, with text that is no source's name made absolute.

    Raises:
        PlanError: the text was meant as a number, as far as the field takes one, or is an address of elsewhere.
    """
    if isinstance(value, list | tuple):
        return type(value)(path_value(kind, name, part, directory, sources) for part in value)
    try:
        if isinstance(value, str) and takes_numbers(kind, name):
            value = number_or_path(value, directory, sources)
        is_path = isinstance(value, str) and value and value not in sources
        return absolute(value, directory, is_local=name in kind.local_fields) if is_path else value
    except PlanError as error:
        problem = msgspec.structs.replace(error.problems[0], field=name)
        raise PlanError(problem) from None


def absolute(text: str, directory: str, *, is_local: bool = False) -> str:
    """A path of a plan made absolute; suffixes (`@STEP`, `:ENTRY`) stay as they are.

    ``is_local``: what stands there is read on this machine alone.

    >>> absolute("runs/big@1000", "/plans"), absolute("./f.npz:a", "/plans"), absolute("file:///c", "/plans")
    ('/plans/runs/big@1000', '/plans/f.npz:a', '/c')
    >>> absolute("../big@1000", "gs://bucket/plans"), absolute("gs://bucket/big", "/plans")
    ('gs://bucket/big@1000', 'gs://bucket/big')
    >>> absolute("runs/big/", "/plans"), absolute("gs://bucket/big/", "/plans"), absolute("/", "/plans")
    ('/plans/runs/big', 'gs://bucket/big', '/')

    Raises:
        PlanError: it is an address of elsewhere.
    """
    read = local_address if is_local else address
    text = read(text)
    text = text.rstrip("/") or text[:1]  # as shells complete the names of folders
    if text.startswith(STARTS):
        return text
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    if text.startswith("~"):
        with contextlib.suppress(RuntimeError):  # `~name` where nobody has that name
            return str(Path(text).expanduser())
    # plain text, not a `Path`: suffixes stay, and `..` too, whose meaning depends on symbolic links
    if text.startswith("/"):
        return text
    # in a bucket, where there are no links, `..` is taken out
    return read(f"{directory.rstrip('/')}/{text}")
