"""Names that are one text in two forms of Unicode: copies by way of macOS change the names of folders."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable


def respelled(lost: Iterable[str], found: Iterable[str]) -> dict[str, str]:
    """Of names that are not found, those that exactly one found name spells in another form, with that.

    >>> respelled(["caf\u00e9", "a"], ["cafe\u0301"]) == {"caf\u00e9": "cafe\u0301"}
    True
    """
    stored: dict[str, list[str]] = defaultdict(list)
    for name in found:
        stored[unicodedata.normalize("NFC", name)].append(name)
    asked: dict[str, list[str]] = defaultdict(list)
    for name in lost:
        asked[unicodedata.normalize("NFC", name)].append(name)
    return {
        names[0]: stored[text][0]
        for text, names in asked.items()
        if len(names) == len(stored[text]) == 1
    }
