"""Markdown, for GitHub's step summary: all that is wrong as a table, and the count of what agrees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from surgery_cli.console.printable import printable_suite
from surgery_cli.document import Case, Document, Suite
from surgery_cli.words.quantities import counted

_MOST_BYTES: Final = 1_000_000
"""GitHub takes 1 MiB of a step."""

_MOST_OF_A_CELL: Final = 500
_MARKS: Final = {"error": "❌ error", "failed": "❌ broken", "warned": "⚠️ warning"}
_WORDS: Final = {**_MARKS, "passed": "✅ holds", "skipped": "not looked at"}
_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>()#+!|~&$@-]")


def text_of(document: Document) -> str:
    """A heading, a table of cases, worst first, and how many there are of each; never more than GitHub takes."""
    suite = printable_suite(document)
    lines = list(_head(suite))
    order = list(_WORDS)
    cases = sorted(suite.cases, key=lambda case: order.index(case.outcome))
    size = sum(len(line.encode()) + 1 for line in lines)
    for number, case in enumerate(cases):
        line = _row(case)
        size += len(line.encode()) + 1
        if size > _MOST_BYTES - 200:
            lines += ["", f"and {len(cases) - number:,} more: `--output json=FILE` has all of them"]
            break
        lines.append(line)
    return "\n".join((*lines, ""))


def _head(suite: Suite) -> Iterator[str]:
    command = _plain(suite.title)
    if suite.count("failed", "error"):
        yield f"### ❌ {command}"
    elif suite.cases and suite.count("skipped") == len(suite.cases):
        yield f"### {command}: nothing was found wrong, but nothing could be compared"
    else:
        yield f"### ✅ {command}"
    yield ""
    if about := suite.judged or suite.subject:
        yield _plain(about)
        yield ""
    counts = {
        word: sum(case.outcome == name for case in suite.cases) for name, word in _WORDS.items()
    }
    said = [f"{count:,} {word}" for word, count in counts.items() if count]
    yield f"{counted(len(suite.cases), 'case')}: {', '.join(said) or 'nothing to look at'}"
    yield ""
    if suite.cases:
        yield "| | | |"
        yield "|---|---|---|"


def _row(case: Case) -> str:
    place = f" ({case.file}:{case.line})" if case.file and case.line else ""
    text = case.what or case.about
    if case.outcome in _MARKS:
        text = "\n".join(dict.fromkeys((text, *case.details)))
    if len(text) > _MOST_OF_A_CELL:
        text = f"{text[:_MOST_OF_A_CELL]}…"
    return f"| {_WORDS[case.outcome]} | {_plain(case.name + place)} | {_plain(text)} |"


def _plain(text: str) -> str:
    """Text in which nothing is markup, on one line."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text).replace("\n", "<br>")
