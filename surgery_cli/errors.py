"""What can go wrong, in words that a person can act on; each error knows its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import msgspec

from surgery_cli.words.measured import numberless, spanned
from surgery_cli.words.series import folded


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong: what, why, and what to do about it.

    ``path`` is the printed path of a leaf; ``file``, ``line``, ``column`` (from 1) and ``field`` point into
    a plan file.
    """

    what: str
    why: str = ""
    fix: str = ""
    path: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None

    @property
    def said(self) -> str:
        """What is wrong, with the leaf's path where the words do not name it."""
        is_named = not self.path or self.path in self.what
        return self.what if is_named else f"'{self.path}': {self.what}"

    @property
    def place(self) -> str:
        """Where in a plan file it stands: ``head.yaml:7:3: ``; empty if it does not stand in one."""
        if self.file is None:
            return ""
        known = (str(one) for one in (self.file, self.line, self.column) if one is not None)
        return f"{':'.join(known)}: "


class SurgeryError(Exception):
    """Base of every error that is not a bug; carries one or more problems.

    Exit code 2: the command or the plan is wrong, as far as metadata shows.
    """

    exit_code: int = 2

    def __init__(self, what: str | Problem, **details: Any) -> None:
        problem = what if isinstance(what, Problem) else Problem(what, **details)
        self.problems: tuple[Problem, ...] = (problem,)
        super().__init__(problem.what)

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> Self:
        """One error for all ``problems`` (at least one), in their order."""
        gathered = tuple(problems)
        error = cls(gathered[0])
        error.problems = gathered
        return error

    def retold(self, problems: Iterable[Problem]) -> Self:
        """The error in other words: of what kind it is stays, as who catches it goes by that."""
        return type(self).of(problems)

    def __str__(self) -> str:
        return "\n".join(
            "\n  ".join(line for line in (p.place + p.what, p.why, p.fix) if line)
            for p in grouped(self.problems)
        )


class PlanError(SurgeryError):
    """The plan, or the command that stands for one, is wrong (exit code 2)."""


class MissingError(PlanError):
    """Nothing stands where the plan or the command says (exit code 2)."""


class DestinationError(SurgeryError):
    """The destination cannot be used: it exists, lies in the source, or has no room (exit code 2)."""


class ValueRefusal(SurgeryError):
    """Only the values show that the edit must not be done: a zero norm, an overflowing cast."""

    exit_code = 1


class ContractError(SurgeryError):
    """The training script could not restore the result as it is; nothing was written."""

    exit_code = 1


class UndoError(SurgeryError):
    """Something that a run did cannot be undone."""

    exit_code = 1


class CheckpointError(SurgeryError):
    """Not a checkpoint, unfinished, damaged, or changed underneath."""

    exit_code = 3


class UnseenError(CheckpointError):
    """It could not be looked at: nobody may take it for damaged, for another, or for gone."""


class NotPermittedError(UnseenError):
    """The system does not let this user read it; whether it is whole cannot be told."""


class BeingWrittenError(CheckpointError):
    """A run of ours is writing it, or may be: nothing is lost that a rescue could find."""


class ServiceFails(UnseenError):
    """A service does not answer, says no, or has another object by now: this tells nothing of what it keeps."""


class LeftBehindError(CheckpointError):
    """A run of ours was killed while it wrote it: what it was made from is where it was."""


class LimitError(CheckpointError):
    """It declares more than is read of anything, unless that is asked for; it may be whole."""


class WriteError(SurgeryError):
    """Writing failed, or what was written did not read back; ``fix`` says what is left."""

    exit_code = 4


class RemovedError(WriteError):
    """What was being built was removed by another program."""


class LostProcessError(SurgeryError):
    """A process of this run on many hosts did not come, or is gone: the same command may be started again."""

    exit_code = 143


class Gathering:
    """Collects problems of one stage, so that they are reported together."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.kind: type[SurgeryError] = PlanError

    @contextmanager
    def catching(self, **details: Any) -> Iterator[None]:
        """Keep a SurgeryError raised inside for later; ``details`` fill fields that it left empty."""
        try:
            yield
        except SurgeryError as error:
            if error.exit_code != PlanError.exit_code:
                self.kind = type(error)
            for problem in error.problems:
                missing = {k: v for k, v in details.items() if getattr(problem, k) is None}
                self.problems.append(msgspec.structs.replace(problem, **missing))

    def raise_if_any(self) -> None:
        """Raise everything that was gathered as one error, the same words once; return if nothing was."""
        if self.problems:
            raise self.kind.of(dict.fromkeys(self.problems))


def raise_all(problems: Iterable[Problem]) -> None:
    """Raise the problems of a plan together; return if there are none."""
    found = list(problems)
    if found:
        raise PlanError.of(found)


_MOST_ALIKE = 3
_MOST_OTHERS = 5
_SHAPE = re.compile(r"\[[\d, ]*\]")
_QUOTED = re.compile(r"(?<!\w)'[^']*'|`[^`]*`")
_IN_A_NAME = re.compile(r"(?<=[A-Za-z_/])\d+(?![\d.]*…)")
"""The number of a layer, between backticks."""


def grouped(problems: Sequence[Problem]) -> list[Problem]:
    """The same problems for a reader, in their order: more than three of one cause become the first of them.

    Problems have one cause if they differ in names in quotes, in shapes and in numbers between backticks alone. The one
    that is left speaks of its whole series (`layers_{0..11}/w`) where it is one of one shape, and says from where to
    where the numbers of all go; its ``why`` says how many more it stands for.
    """
    return [one.problem for one in groups(problems)]


class Group(NamedTuple):
    """A problem as it is said, and how many it stands for."""

    problem: Problem
    number: int


def groups(problems: Sequence[Problem]) -> list[Group]:
    """As ``grouped``, each with how many it stands for; of the same words there is one."""
    alike: dict[Problem, list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        alike.setdefault(_cause(problem), []).append(problem)
    kept: list[Group] = []
    for group in alike.values():
        if len(group) <= _MOST_ALIKE:
            kept += [Group(one, 1) for one in group]
        else:
            kept.append(Group(_of_all(group), len(group)))
    return kept


def _cause(problem: Problem) -> Problem:
    """The problem without names, numbers of places, and shapes."""

    def plain(text: str) -> str:
        return _SHAPE.sub(
            "[]", _QUOTED.sub(lambda m: "''" if m[0][0] == "'" else _nameless(m[0]), text)
        )

    texts = {name: plain(getattr(problem, name)) for name in ("what", "why", "fix")}
    return msgspec.structs.replace(problem, path=None, line=None, column=None, **texts)


def _nameless(span: str) -> str:
    """What stands between quotes without the numbers by which names differ, and without what was measured."""
    if span[0] == "'":
        return re.sub(r"\d+", "#", span)
    return _IN_A_NAME.sub("#", numberless(span))


def _of_all(group: Sequence[Problem]) -> Problem:
    """One problem in the place of many: of the first and of those in its series, with the others counted."""
    spoken = _with_spans([_spoken(problem) for problem in group])
    named = [tuple(_QUOTED.findall(text)) for text in spoken]
    shapes = (tuple(_SHAPE.findall(text)) for text in spoken)
    kinds = [(*map(_nameless, names), *own) for names, own in zip(named, shapes, strict=True)]
    series = [at for at, kind in enumerate(kinds) if kind == kinds[0]]
    said = spoken[0]
    for spans in zip(*(named[at] for at in series), strict=True):
        together = folded(dict.fromkeys(spans))
        if len(together) > 1:  # numbers that do not go together
            series = series[:1]
            said = spoken[0]
            break
        said = said.replace(spans[0], together[0])
    what, why, path = said.split("\0")
    rest = len(group) - len(series)
    others = folded(
        f"'{problem.path}'" if problem.path else names[0]
        for at, (problem, names) in enumerate(zip(group, named, strict=True))
        if at not in series and (problem.path or names)
    )
    more = f"and so it is with {rest} more" if rest else f"so it is with all {len(group)}"
    if 0 < len(others) <= _MOST_OTHERS:
        more += f": {', '.join(others)}"
    lines = dict.fromkeys(str(one.line) for one in group if one.line != group[0].line)
    if lines:
        more += f" ({'line' if len(lines) == 1 else 'lines'} {', '.join(lines)})"
    return msgspec.structs.replace(
        group[0],
        what=what,
        why=f"{why}; {more}" if why else more,
        path=path[1:-1] if group[0].path else None,
    )


def _with_spans(texts: Sequence[str]) -> list[str]:
    """The texts, in which what was measured speaks of all of them: only names are folded."""
    spans = [[span for span in _QUOTED.findall(text) if span[0] == "`"] for text in texts]
    if len({len(row) for row in spans}) > 1:  # a name with a quote in it
        return list(texts)
    together = zip(*map(spanned, zip(*spans, strict=True)), strict=True)
    rows = list(together) or [()] * len(texts)
    return [_with_backticked(text, iter(row)) for text, row in zip(texts, rows, strict=True)]


def _with_backticked(text: str, spans: Iterator[str]) -> str:
    return _QUOTED.sub(lambda m: next(spans) if m[0][0] == "`" else m[0], text)


def _spoken(problem: Problem) -> str:
    """What a problem says of its leaf, as one text whose parts can be told apart; advice must work as it stands."""
    return "\0".join((problem.what, problem.why, f"'{problem.path}'"))
