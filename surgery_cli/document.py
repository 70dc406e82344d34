"""What all documents have in common, the one of a failure, and how they become JSON."""

from __future__ import annotations

import json
from functools import partial
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

import msgspec

from surgery_cli.errors import Problem
from surgery_cli.tree.nested import mapped
from surgery_cli.words.invocation import typed
from surgery_cli.words.notes import Note

SCHEMA_VERSION = 1
PROGRAM: Final = "surgery"


Outcome: TypeAlias = Literal["passed", "failed", "warned", "error", "skipped"]
"""What became of a case: ``warned`` is broken, and fails nothing; ``error``: it could not be judged."""


class Case(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that a command has looked at, as programs show it that know nothing of checkpoints.

    ``about`` says what was looked at, ``what`` in a line what is wrong, ``details`` all of that in lines: a line end
    inside of one is part of a name. ``file``, ``line`` and ``column`` point into a policy or plan.
    """

    name: str
    outcome: Outcome = "passed"
    about: str = ""
    what: str = ""
    details: list[str] = []
    file: str | None = None
    line: int | None = None
    column: int | None = None


class Suite(msgspec.Struct, frozen=True):
    """All cases of a command, of what agrees as well as of what does not."""

    command: str
    subject: str
    """As the command named it: by this, CI holds the results of one run against those of the next."""
    cases: list[Case]
    seconds: float | None = None
    judged: str = ""
    """Text that opens what was looked at, with the step that was taken."""

    @property
    def title(self) -> str:
        """The command with the name of the program, where one was typed."""
        return self.command if self.command == PROGRAM else f"{PROGRAM} {self.command}"

    def count(self, *outcomes: Outcome) -> int:
        """How many cases came out like that."""
        return sum(case.outcome in outcomes for case in self.cases)


class Document(msgspec.Struct, kw_only=True, frozen=True):
    """Base of every document; ``schema_version`` rises when a key changes its meaning."""

    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """The document as plain values: what `--json` prints."""
        found: dict[str, Any] = as_builtins(self)
        return found

    def _repr_html_(self) -> str:
        """How a notebook shows it: a table of its fields, long lists folded."""
        from surgery_cli.words.html import table_of

        return table_of(type(self).__name__, self.to_dict())

    def suite(self) -> Suite:
        """The document as cases; none where nothing was judged."""
        return Suite("", "", [])


class Noted(Document, kw_only=True, frozen=True):
    """A document with notes beside what it says."""

    notes: list[Note] = []
    note_pages: list[str] = []
    """The page of the documentation that explains each note, in their order."""

    def __post_init__(self) -> None:
        pages = [note.page.value for note in self.notes]
        msgspec.structs.force_setattr(self, "note_pages", pages)


class Failure(Document, kw_only=True, frozen=True):
    """What ``--json`` prints when a command fails."""

    problems: list[Problem]

    def suite(self) -> Suite:
        command, *words = typed() or (PROGRAM,)
        behind = words[words.index("--") + 1 :] if "--" in words else words
        given = takewhile(lambda word: not word.startswith("-"), behind)
        cases = [
            Case(
                name=problem.path or problem.file or command,
                outcome="error",
                what=problem.what,
                details=[line for line in (*problem.why.split("\n"), problem.fix) if line],
                file=problem.file,
                line=problem.line,
                column=problem.column,
            )
            for problem in self.problems
        ]
        return Suite(command, " ".join(given), cases)


class LintedFile(msgspec.Struct, kw_only=True, frozen=True):
    """A plan or policy in which nothing is wrong, and how many edits or rules it has."""

    file: str
    kind: str
    entries: int


class Linted(Document, kw_only=True, frozen=True):
    """What ``lint`` prints where nothing is wrong; else it fails with what is."""

    files: list[LintedFile]


class DescribedField(msgspec.Struct, kw_only=True, frozen=True):
    """A field of an operation."""

    name: str
    """Its key in a plan."""
    option: str | None
    """What it is called on the command line; ``at`` has no name there."""
    type: str
    """In words: ``number or text``."""
    required: bool
    default: Any
    """None where it is required, or where nothing is the default."""
    description: str
    common: bool
    """True if every operation has it."""


class DescribedOperation(msgspec.Struct, kw_only=True, frozen=True):
    """An operation: its name in plans and on the command line, an example of each."""

    name: str
    summary: str
    description: str
    fields: list[DescribedField]
    example: str
    """An entry of a plan, in YAML."""
    command: str


class Versions(Document, kw_only=True, frozen=True):
    """What ``version`` prints."""

    version: str
    """Of this program."""
    libraries: dict[str, str | None]
    """Of what checkpoints are read with; None for one that is not installed."""


class OperationList(Document, kw_only=True, frozen=True):
    """What ``operations`` prints."""

    operations: list[DescribedOperation]


def json_text(document: Any) -> str:
    """One JSON document, indented as people read it."""
    text = compact_json(document)
    try:
        text = msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        # a name that is not UTF-8 holds lone surrogates
        text = json.dumps(json.loads(text), indent=2)
    return f"{text}\n"


def compact_json(document: Any) -> str:
    """One JSON document in one line, in ASCII, so that no locale can break it."""
    write = partial(json.dumps, allow_nan=False, separators=(",", ":"))
    try:
        return write(msgspec.to_builtins(document, enc_hook=str))
    except ValueError:  # a number that JSON does not have
        return write(as_builtins(document))


def as_builtins(document: Any) -> Any:
    """The document as JSON-ready values; NaN and infinities become strings, and notes of any kind, too."""
    return mapped(msgspec.to_builtins(document, enc_hook=str), _finite)


def _finite(item: Any) -> Any:
    return str(item) if isinstance(item, float) and item - item != 0 else item
