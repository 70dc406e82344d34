"""One place may be spelled in many ways: plans and options of two runs are held together by what is meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.write.journal import Input

_PLACE: Final = re.compile(
    r"(?P<place>(?:/|gs://|s3://).*?)(?P<part>(?:@[^/@:]+)?(?::[^/]*)?)", re.DOTALL
)
"""An absolute path or an address, and what stands behind it: `@STEP`, `:ENTRY`, `:NAME`."""


def real_place(text: str) -> str:
    """An absolute path without links and `..`, with the step or entry that is named behind it; other text as it is."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return text
    with suppress(OSError, ValueError, RuntimeError):  # no path
        whole = path_at(text)
        if found["part"] and filesystem.exists(whole):  # a name with such a sign in it
            return str(filesystem.real(whole))
        return str(filesystem.real(path_at(found["place"]))) + found["part"]
    return text


def in_the_words_of(now: Any, before: Any) -> Any:
    """The document ``before`` as it would be in the words of ``now``, wherever both mean the same place."""
    if isinstance(now, Mapping) and isinstance(before, Mapping):
        return {key: in_the_words_of(now.get(key), value) for key, value in before.items()}
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return [in_the_words_of(ours, theirs) for ours, theirs in zip(now, before, strict=True)]
    if isinstance(now, str) and isinstance(before, str) and now != before:
        return now if real_place(now) == real_place(before) else before
    return before


def with_places(text: str, inputs: Mapping[str, Input]) -> str:
    """The value of an option of the probe, with the files that it names as they were read, wherever that was typed."""
    for name, one in inputs.items():
        said = name.removeprefix(_PROBE).partition("=")[2] or name.removeprefix(_PROBE)
        file = f"{said.rpartition('.py:')[0]}.py" if ".py:" in said else said
        if name.startswith(_PROBE) and file in text:
            text = text.replace(file, real_place(one.place))
    return text


_PROBE: Final = "probe "


def was(name: str, one: Input, before: Mapping[str, Input]) -> Input | None:
    """What was read in the place of an input; of another name that which was read as the same, at the same place."""
    if name in before:
        return before[name]
    place = real_place(one.place)
    return next(
        (b for b in before.values() if b.kind == one.kind and real_place(b.place) == place), None
    )


def name_then(name: str, inputs: Mapping[str, Input], before: Mapping[str, Input]) -> str | None:
    """What an input was called ``before``, if it was read, under another name for the same place."""
    if name in before or name not in inputs:
        return None
    then = was(name, inputs[name], before)
    return next((key for key, one in before.items() if one is then), None)
