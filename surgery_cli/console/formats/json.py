"""JSON: the keys of a document are the fields of its struct."""

from __future__ import annotations

import json
from typing import Any


def text_of(document: Any) -> str:
    """One JSON document, in ASCII, so that no locale can break it."""
    import msgspec

    from surgery_cli.document import as_builtins

    value = as_builtins(document)
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    try:
        text = msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        # a name that is not UTF-8 holds lone surrogates
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, indent=2)
    return f"{text}\n"
