"""Quantities as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from surgery_cli.words.lists import listed

_MOST_MOVES: Final = 3


def byte_text(count: int) -> str:
    """A number of bytes in binary units.

    >>> byte_text(48), byte_text(1536), byte_text(5 << 40)
    ('48 B', '1.5 KiB', '5.0 TiB')
    """
    if count < 1024:
        return f"{count} B"
    if count >= 1 << 80:
        return "over a billion PiB"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} PiB"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "leaf", "leaves"), counted(1200, "slot")
    ('1 leaf', '1,200 slots')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def leaves_text(count: int) -> str:
    return counted(count, "leaf", "leaves")


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


def minutes_text(minutes: float) -> str:
    """A time that is known in tenths of minutes.

    >>> minutes_text(0.02), minutes_text(0.05), minutes_text(12.34)
    ('less than 0.1 minutes', '0.1 minutes', '12.3 minutes')
    """
    return f"{max(minutes, 0.1):.1f} minutes" if minutes >= 0.05 else "less than 0.1 minutes"


def array_text(dtype: object, shape: Iterable[int]) -> str:
    """What an array is, as people read it: ``float32[3,4]``."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def nodes_text(count: int) -> str:
    return counted(count, "node")


def setting_text(value: Any) -> str:
    """A setting of an edit in a line: mappings with arrows, lists with commas, numbers as they are read.

    >>> setting_text({"a": "b", "b": "a"}), setting_text(dict.fromkeys("abcde", "f"))
    ('a → b, b → a', 'a → f, b → f and 3 more')
    """
    if isinstance(value, Mapping):
        moves = [f"{old} → {new}" for old, new in value.items()]
        return listed(moves, 2 if len(moves) > _MOST_MOVES else 0)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
