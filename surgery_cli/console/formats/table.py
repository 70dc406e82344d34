"""The one table that lists the output formats; the option `--output`, its help and its checks are read from it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple


class Format(NamedTuple):
    """An output format: the module of its name in this folder has ``text_of(document) -> str``."""

    about: str
    """What it is, as the help says it."""
    commands: tuple[str, ...]
    """Whose documents it can say."""


_VERDICTS: Final = ("check", "diff", "verify")

FORMATS: Final = {
    "json": Format("the document of `--json`", _VERDICTS),
    "junit": Format("JUnit's XML, a case for everything that was looked at", _VERDICTS),
    "github": Format("annotations for GitHub's runners, at most ten", _VERDICTS),
    "markdown": Format("a page for GitHub's step summary, under 1 MB", _VERDICTS),
}


def formats_of(command: str) -> dict[str, Format]:
    """The formats of which a command has the choice."""
    return {name: form for name, form in FORMATS.items() if command in form.commands}


def text_of(name: str, document: Any) -> str:
    """A document as a format says it; the format is loaded when it is first used."""
    text: str = import_module(f"surgery_cli.console.formats.{name}").text_of(document)
    return text
