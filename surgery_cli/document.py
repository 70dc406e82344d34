"""What all documents have in common, the one of a failure, and how they become JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.errors import Problem
from surgery_cli.tree.nested import mapped

SCHEMA_VERSION = 1


class Document(msgspec.Struct, kw_only=True, frozen=True):
    """Base of every document; ``schema_version`` rises when a key changes its meaning."""

    schema_version: int = SCHEMA_VERSION


class Failure(Document, kw_only=True, frozen=True):
    """What ``--json`` prints when a command fails."""

    problems: list[Problem]


def as_builtins(document: Any) -> Any:
    """The document as JSON-ready values; NaN and infinities become strings, and notes of any kind, too."""
    return mapped(msgspec.to_builtins(document, enc_hook=str), _finite)


def _finite(item: Any) -> Any:
    return str(item) if isinstance(item, float) and item - item != 0 else item
