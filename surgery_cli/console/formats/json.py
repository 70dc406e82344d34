"""JSON: the keys of a document are the fields of its struct."""

from __future__ import annotations

from surgery_cli.document import Document, json_text


def text_of(document: Document) -> str:
    """The document of `--json`."""
    return json_text(document)
