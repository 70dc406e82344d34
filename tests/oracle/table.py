"""The table of verdicts, in words. Imports nothing heavy: the process that prints it may not have tried anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

RIGHT: Final = "right"
KEPT: Final = "kept and said"
REFUSED: Final = "refused"
SAID: Final = "wrong and said"
UNSAID: Final = "WRONG AND UNSAID"
UNJUDGED: Final = "not finite"
VERDICTS: Final = (RIGHT, KEPT, REFUSED, SAID, UNSAID, UNJUDGED)


def table(verdicts: Iterable[tuple[str, str]]) -> str:
    """How often each optimizer got each verdict, from pairs of both."""
    rows: dict[str, Counter[str]] = {}
    for name, verdict in verdicts:
        rows.setdefault(name, Counter())[verdict] += 1
    width = max(map(len, rows), default=0)
    lines = ["  ".join((" " * width, *VERDICTS))]
    lines += [_row(name.ljust(width), rows[name]) for name in sorted(rows)]
    return "\n".join([*lines, _row("all".ljust(width), sum(rows.values(), Counter()))])


def _row(name: str, counts: Counter[str]) -> str:
    return "  ".join((name, *(str(counts[v] or "·").rjust(len(v)) for v in VERDICTS)))
