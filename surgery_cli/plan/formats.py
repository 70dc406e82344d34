"""Plan text in YAML 1.2, TOML or JSON."""

from __future__ import annotations

from typing import Final

from surgery_cli.errors import PlanError
from surgery_cli.plan.json_text import parse_json
from surgery_cli.plan.text import PlanText
from surgery_cli.plan.toml_text import parse_toml
from surgery_cli.plan.yaml_text import parse_yaml

FORMATS: Final = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML", ".json": "JSON"}
"""The formats by file suffix."""


def parse(text: str, format: str, file: str) -> PlanText:
    """Parse a document; ``file`` is its name in messages.

    Raises:
        PlanError: the text is not in that format, repeats a key, or uses what the three formats do not share.
    """
    if not text.strip():
        return PlanText(value=None, file=file)
    readers = {"YAML": parse_yaml, "TOML": parse_toml, "JSON": parse_json}
    try:
        return readers[format](text, file)
    except RecursionError:
        raise PlanError(
            "the plan is nested too deeply to be one", fix="see `surgery schema`", file=file
        ) from None
