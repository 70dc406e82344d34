"""Names and paths as they may be printed: they come from strangers."""

from __future__ import annotations

from pathlib import Path


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


def shown_path(path: str) -> str:
    """A path as short as it can be said: relative to the working directory if it lies in it."""
    return path.removeprefix(f"{Path.cwd()}/")
