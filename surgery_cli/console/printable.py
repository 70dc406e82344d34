"""Names and paths as they may be printed: they come from strangers."""

from __future__ import annotations

import codecs
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

if TYPE_CHECKING:
    from surgery_cli.document import Document, Suite

LEGIBLE: Final = "surgery.legible"
"""How a stream treats what its locale cannot write: our own signs become ASCII, anything else an escape."""

_ASCII: Final = {
    "→": "->", "…": "...", "×": "x", "·": "*", "—": "-", "−": "-", "±": "+-", "√": "sqrt ", "³": "^3",
    "█": "#", "░": ".", "▁": "_", "▂": ".", "▃": ":", "▄": "-", "▅": "=", "▆": "+", "▇": "*",
    "✅": "ok", "❌": "x", "⚠": "!", "\ufe0f": "",
}  # fmt: skip


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    said = (_ASCII.get(c, c.encode("ascii", "backslashreplace").decode("ascii")) for c in signs)
    return "".join(said), error.end


codecs.register_error(LEGIBLE, _in_ascii)


def over_progress(stream: TextIO) -> str:
    """What a line begins with that is written where a line of progress may be drawn; '' where none is."""
    return "\r\x1b[K" if stream.isatty() else ""


def legible(text: str, encoding: str) -> str:
    r"""``text`` as it is written where the locale has that encoding.

    >>> legible("a → b…", "utf-8"), legible("a → b…", "ascii"), legible("gewählt", "ascii")
    ('a → b…', 'a -> b...', 'gew\\xe4hlt')
    """
    return text if text.isascii() else text.encode(encoding, LEGIBLE).decode(encoding)


def columns_of(text: str) -> int:
    """How many columns of a terminal the text takes: signs of East Asia two, combining ones none.

    >>> columns_of("kernel"), columns_of("核")
    (6, 2)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def escaped(text: str) -> str:
    r"""``text`` with everything that is not printable written as an escape: names come from strangers.

    >>> escaped("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text
    )


def printable_suite(document: Document) -> Suite:
    """The cases of a document, every text in them as it may be printed.

    Formats say nothing of a document but this: what stands in a log turns no line around and is no command there.
    """
    suite = document.suite()
    cases = [
        msgspec.structs.replace(
            case,
            name=escaped(case.name),
            about=escaped(case.about),
            what=escaped(case.what),
            details=[escaped(detail) for detail in case.details],
            file=case.file and escaped(case.file),
        )
        for case in suite.cases
    ]
    texts = {name: escaped(getattr(suite, name)) for name in ("command", "subject", "judged")}
    return msgspec.structs.replace(suite, cases=cases, **texts)


def shown_path(path: str) -> str:
    """A path as short as it can be said: relative to the working directory if it lies in it."""
    with suppress(
        OSError
    ):  # the directory that this runs in may be gone by now: it was replaced, say
        return path.removeprefix(f"{Path.cwd()}/")
    return path
