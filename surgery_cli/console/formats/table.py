"""The one table that lists the output formats; the option `--output`, its help and its checks are read from it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from surgery_cli.console.page import Page


class Format(NamedTuple):
    """An output format: the module of its name in this folder has ``text_of(document) -> str``.

    One that ``says_text`` has ``text_of(document, render)``, and puts in what people read by ``render``.
    """

    about: str
    """What it is, as the help says it."""
    commands: tuple[str, ...]
    """Whose documents it can say."""
    says_text: bool = False


_VERDICTS: Final = ("check", "diff", "verify")

FORMATS: Final = {
    "json": Format("the document of `--json`", _VERDICTS),
    "junit": Format("JUnit's XML, a case for everything that was looked at", _VERDICTS),
    "github": Format("annotations for GitHub's runners, at most ten", _VERDICTS),
    "markdown": Format("a page for GitHub's step summary, under 1 MB", _VERDICTS),
    "html": Format("a page for a browser", _VERDICTS, says_text=True),
}


def formats_of(command: str) -> dict[str, Format]:
    """The formats of which a command has the choice."""
    return {name: form for name, form in FORMATS.items() if command in form.commands}


def text_of(name: str, document: Any, render: Callable[[Any, Page], None]) -> str:
    """A document as a format says it, ``render`` as people read it; the format is loaded when it is first used."""
    module = import_module(f"surgery_cli.console.formats.{name}")
    text: str = module.text_of(*([document, render] if FORMATS[name].says_text else [document]))
    return text
