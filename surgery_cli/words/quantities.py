"""Quantities as people read them."""

from __future__ import annotations


def byte_text(count: int) -> str:
    """A number of bytes in binary units.

    >>> byte_text(48), byte_text(1536), byte_text(5 << 40)
    ('48 B', '1.5 KiB', '5.0 TiB')
    """
    if count < 1024:
        return f"{count} B"
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
