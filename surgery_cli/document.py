"""What all documents have in common, the one of a failure, and how they become JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.errors import Problem

SCHEMA_VERSION = 1


class Document(msgspec.Struct, kw_only=True, frozen=True):
    """Base of every document; ``schema_version`` rises when a key changes its meaning."""

    schema_version: int = SCHEMA_VERSION


class Failure(Document, kw_only=True, frozen=True):
    """What ``--json`` prints when a command fails."""

    problems: list[Problem]


def as_builtins(document: Any) -> Any:
    """The document as JSON-ready values; NaN and infinities become strings, and notes of any kind, too."""
    return _finite(msgspec.to_builtins(document, enc_hook=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
