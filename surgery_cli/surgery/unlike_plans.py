"""In what two plans differ, as it is shown to whoever meant them to be one."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Final, NamedTuple

import msgspec

from surgery_cli.inputs.json_decoding import decode_json

_SHOWN: Final = 200
"""So many characters of an edit at most."""


class Unlike(NamedTuple):
    """An edit or another field of a plan, and what either has there."""

    what: str
    one: str
    other: str


def first_unlike(one: str, other: str) -> Unlike | None:
    """The first in which two plans differ, both as JSON; None where they do not.

    >>> first_unlike('{"edits": [{"by": 2}]}', '{"edits": [{"by": 3}]}')
    Unlike(what='edit 1', one='`{"by":2}`', other='`{"by":3}`')
    """
    a, b = (decode_json(text, type=dict[str, Any]) for text in (one, other))
    for number, (ours, theirs) in enumerate(zip_longest(a.get("edits", ()), b.get("edits", ())), 1):
        if ours != theirs:
            return Unlike(f"edit {number}", _shown(ours), _shown(theirs))
    for key in sorted({*a, *b}):
        if a.get(key) != b.get(key):
            return Unlike(f"`{key}`", _shown(a.get(key)), _shown(b.get(key)))
    return None


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = msgspec.json.encode(value).decode()
    return f"`{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}`"
