"""Numbers and names as people read them."""

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


def number_text(value: float) -> str:
    """A number in four significant digits.

    >>> number_text(0.125), number_text(-3), number_text(1.23456e-9), number_text(float("nan"))
    ('0.125', '-3', '1.235e-09', 'nan')
    """
    return f"{value:.4g}"


def duration_text(seconds: float) -> str:
    """A time as a clock shows it from a minute on.

    >>> duration_text(0.84), duration_text(75), duration_text(7325)
    ('0.8 s', '1:15', '2:02:05')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def shown_path(path: str) -> str:
    """A path as short as it can be said: relative to the working directory if it lies in it."""
    return path.removeprefix(f"{Path.cwd()}/")
