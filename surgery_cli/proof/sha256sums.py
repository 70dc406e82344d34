"""Lists of SHA-256 as `sha256sum` writes and `sha256sum -c` reads them; signing tools sign such a file.

Source: GNU coreutils, `digest.c`: a line is the digest, two spaces and the name; where the name has a backslash, a line
feed or a carriage return, a backslash begins the line, and these are escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from surgery_cli.errors import PlanError

_ESCAPES: Final = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
_MEANT: Final = {escape: byte for byte, escape in _ESCAPES.items()}
_LINES: Final = (
    re.compile(rb"(?P<mark>\\?)(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)", re.DOTALL),
    # `--tag`, and what BSD writes
    re.compile(
        rb"(?P<mark>\\?)SHA256 ?\((?P<name>.+)\) ?= ?(?P<digest>[0-9a-fA-F]{64})", re.DOTALL
    ),
)


def sums_of(digests: Iterable[tuple[str, str]]) -> bytes:
    r"""The lines of files, given by name and ``sha256:…``.

    >>> sums_of([("a", "sha256:0f"), ("new\nline", "sha256:1e")])
    b'0f  a\n\\1e  new\\nline\n'
    """
    lines = []
    for name, digest in digests:
        raw = os.fsencode(name)
        escaped = re.sub(rb"[\\\n\r]", lambda found: _ESCAPES[found[0]], raw)
        mark = b"\\" if escaped != raw else b""
        lines.append(mark + digest.removeprefix("sha256:").encode() + b"  " + escaped + b"\n")
    return b"".join(lines)


def digests_in(raw: bytes) -> dict[str, str] | None:
    """``sha256:…`` by the names of files; None if it is no such list. A `./` that begins a name is left out.

    Raises:
        PlanError: two lines say different things of one file, of which `sha256sum -c` finds one to fail.
    """
    found: dict[str, str] = {}
    for line in raw.split(b"\n"):
        if not line:
            continue
        text = line.removesuffix(b"\r")
        parts = next(filter(None, (form.fullmatch(text) for form in _LINES)), None)
        if parts is None:
            return None
        name = parts["name"]
        if parts["mark"]:
            name = re.sub(rb"\\[\\nr]", lambda escape: _MEANT[escape[0]], name)
        file = name.removeprefix(b"./").decode("utf-8", "backslashreplace")
        digest = f"sha256:{parts['digest'].decode().lower()}"
        if found.setdefault(file, digest) != digest:
            raise PlanError(
                f"the list has two digests of the file '{file}'",
                why="of which one does not hold, whatever the file is",
                fix="make the list again, or leave one of the two lines out",
            )
    return found or None
