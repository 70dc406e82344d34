"""JSON that Orbax wrote, and names in it: told from what one damaged character makes of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.inputs.json_decoding import decode_python_json
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.small_files import read_small


def json_object(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A JSON object, or None; and what is wrong with the file, '' if it is well or not there."""
    if not filesystem.is_file(path):
        return None, what_stands_instead(path)
    try:
        return decode_python_json(read_small(path), type=dict[str, Any]), ""
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        return None, f"not a JSON object: {error}"


def what_stands_instead(path: Path) -> str:
    """What stands where a file should, and is none; '' if nothing does."""
    if filesystem.is_folder(path):
        return "a directory stands in its place"
    return "a link that leads nowhere" if filesystem.is_link(path) else ""


def resembled(name: str, known: Collection[str]) -> str | None:
    """The known name that ``name`` is but for one character; None if it is known itself, or resembles none."""
    if name in known:
        return None
    for one in known:
        if len(one) == len(name) and sum(a != b for a, b in zip(one, name, strict=True)) == 1:
            return one
    return None


def resembles_any(names: Collection[str], known: Collection[str]) -> bool:
    return any(resembled(name, known) is not None for name in names)
