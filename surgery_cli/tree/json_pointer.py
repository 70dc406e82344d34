"""Places in a JSON document, as Orbax addresses text leaves in ``_strings.json``: JSON Pointer, RFC 6901."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_UNKNOWN_ESCAPE: Final = re.compile("~(?![01])")


def is_addressable(name: str) -> bool:
    """True if ``/`` and the name are a JSON Pointer: every tilde in it is followed by 0 or 1.

    >>> is_addressable("a~1b/c"), is_addressable("a~b")
    (True, False)
    """
    return _UNKNOWN_ESCAPE.search(name) is None


def members(name: str) -> list[str]:
    """The names of the members on the way that ``/`` and the name describe.

    >>> members("c/d.s"), members("a~1b~0")
    (['c', 'd.s'], ['a/b~'])
    """
    return [part.replace("~1", "/").replace("~0", "~") for part in name.split("/")]


def text_at(document: Any, name: str) -> str | None:
    """The text at the place that a name means; None if there is none.

    >>> text_at({"c": {"d.s": "hi"}}, "c/d.s")
    'hi'
    """
    if not is_addressable(name):
        return None
    for member in members(name):
        document = document.get(member) if isinstance(document, Mapping) else None
    return document if isinstance(document, str) else None


def document_of(texts: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The document in which every text stands where its name means.

    >>> document_of([("c/d", "hi"), ("c/e", "ho")])
    {'c': {'d': 'hi', 'e': 'ho'}}
    """
    document: dict[str, Any] = {}
    for name, text in texts:
        *outer, last = members(name)
        place = document
        for member in outer:
            place = place.setdefault(member, {})
        place[last] = text
    return document
