"""A page for a browser: one file that asks no network for anything, with the document itself in it.

What it says is said by the same words as on a terminal (`console/html_page.py`), also where no script runs; the script
(`browser/`) draws the table of all leaves or calls from the document.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from surgery_cli import __version__
from surgery_cli.console.html_page import HtmlPage
from surgery_cli.console.page import Page
from surgery_cli.console.printable import escaped
from surgery_cli.document import compact_json
from surgery_cli.words.invocation import typed

_SCRIPTS: Final = ("words", "views", "probe_views", "rows", "charts", "details", "table", "start")
"""In this order, one script."""


def text_of(document: Any, render: Callable[[Any, Page], None]) -> str:
    """The page; ``render`` puts the document's text on one."""
    page = HtmlPage()
    render(document, page)
    command = typed()
    style = _asset("page.css")
    script = '"use strict";\n' + "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    return Template(_asset("page.html")).substitute(
        title=escape(f"surgery {command[0]}" if command else "surgery"),
        command=escape(escaped(" ".join(("surgery", *command)))),
        version=escape(__version__),
        verdict="".join(page.verdicts),
        said="".join(page.said),
        kind=type(document).__name__,
        # nothing can end the element that it stands in
        data=compact_json(document).replace("<", "\\u003c"),
        style=style,
        script=script,
        style_digest=_digest(style),
        script_digest=_digest(script),
    )


def _asset(name: str) -> str:
    return files("surgery_cli.console.formats").joinpath("browser", name).read_text("utf-8")


def _digest(text: str) -> str:
    """What the page's policy lets run, and nothing else: no name can smuggle in a script."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
