"""How operations are spelled on the command line, and what is said of them there."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from surgery_cli.errors import PlanError, SurgeryError
from surgery_cli.operations.table import operations
from surgery_cli.words.advice import Aside, FieldName, InPlan, Offer, Span, Text

if TYPE_CHECKING:
    from surgery_cli.planning import Field


def first_line(kind: object) -> str:
    """The first line of the documentation of an operation or a command."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


_SHARED: Final = ("optimizer", "optimizer_kind", "params", "seed")
"""Fields of plans that are options of every writing command."""


def in_options(text: str, kind: type[msgspec.Struct]) -> str:
    """What is said to users of plans, as said to one who typed the operation, or `reshard`, as a command.

    `cast: true` is `--cast` there, `at: params` is `params`, `except` is `--except`. What only a plan can hold stays.

    >>> from surgery_cli.operations.rescale import Rescale
    >>> from surgery_cli.words.advice import worded
    >>> in_options(worded("{by} is 0: use {by: 1.0}, or {optimizer: keep} or `reset`"), Rescale)
    '`--by` is 0: use `--by 1.0`, or `--optimizer keep` or `reset`'
    """
    if not isinstance(text, Text):
        return text
    return "".join(part if isinstance(part, str) else _spelled(part, kind) for part in text.parts)


def _spelled(span: Span, kind: type[msgspec.Struct]) -> str:
    """The span as it is typed behind a command."""
    from surgery_cli.planning import fields_of

    match span:
        case InPlan(line):
            return f"{line} to a plan for `surgery apply`"
        case Aside():
            return ""
        case Offer(of, does):
            is_taken = any(one.name == of.name for one in fields_of(kind))
            return f"; {_spelled(of, kind)} {does}" if is_taken else ""
        case FieldName(name, value) if name in _SHARED:
            return f"`{_shared_option(name, value)}`"
        case FieldName(name, value):
            kinds = chain((kind,), operations().values())
            field = next((f for one in kinds for f in fields_of(one) if f.name == name), None)
            return str(span) if field is None else f"`{_typed(field, value)}`"
    return str(span)


def _typed(field: Field, value: str) -> str:
    """A field with its value in a plan's spelling ('' if it is only named), as it is typed."""
    from surgery_cli.planning.command_line import option_name, option_words

    if not value:
        return "AT" if field.name == "at" else option_name(field)
    read = _read(value)
    if field.name == "at":
        return _joined(read if isinstance(read, list) else [read])
    if isinstance(read, bool) and not field.is_flag:
        return f"{option_name(field)} {str(read).lower()}"
    return _joined(option_words(field, read)) or f"{field.name}: {value}"


def _shared_option(name: str, value: str) -> str:
    option = "--" + name.replace("_", "-")
    if not value:
        return option
    read = _read(value)
    pairs = read.items() if isinstance(read, dict) else [("", read)]
    texts = [f"{node}={text}" if node else text for node, text in pairs]
    return _joined([word for text in texts for word in (option, text)])


def _read(value: str) -> Any:
    """The value of a field as a plan would read it; what is no YAML (`*`, `…`) as it stands."""
    from surgery_cli.planning.yaml_text import parse_yaml

    try:
        return parse_yaml(f"value: {value}", "advice").value["value"]
    except PlanError:
        return value


def _joined(words: list[Any]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: Any) -> str:
    """A word as a shell takes it; a placeholder in it is none of the shell's business."""
    import shlex

    bare = str(word).replace("…", "x")
    return str(word) if shlex.quote(bare) == bare else shlex.quote(str(word))


@contextlib.contextmanager
def said_in_options(kind: type[msgspec.Struct]) -> Iterator[None]:
    """Let errors that arise in the block advise options of the operation's command instead of fields of a plan."""
    try:
        yield
    except SurgeryError as error:
        error.problems = tuple(
            msgspec.structs.replace(
                problem,
                what=in_options(problem.what, kind),
                why=in_options(problem.why, kind),
                fix=in_options(problem.fix, kind),
            )
            for problem in error.problems
        )
        raise
