"""Plan text in YAML 1.2, TOML or JSON."""

from __future__ import annotations

from typing import Final

from surgery_cli.errors import PlanError
from surgery_cli.plan.json_text import parse_json
from surgery_cli.plan.text import PlanText, refuse_halves
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
        read = readers[format](text, file)
        refuse_halves(read)
    except RecursionError:
        raise PlanError(
            "the plan is nested too deeply to be one", fix="see `surgery schema`", file=file
        ) from None
    except ValueError as error:  # a number of more than 4300 digits, an escape beyond Unicode
        raise PlanError(
            f"not valid {format}: it holds a value that cannot be read",
            why=str(error).partition(";")[0],
            fix="look for a number of very many digits, or for an escape that is no character",
            file=file,
        ) from None
    return read
