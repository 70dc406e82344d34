"""Patterns of leaves as arguments."""

from __future__ import annotations

from typing import Annotated

import typer

from surgery_cli.cli.options.completion import complete_leaf

Patterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[AT]...",
        help="Patterns of leaves: `params/Dense_*`, `**/kernel`; all leaves if left out; `surgery help patterns`.",
        autocompletion=complete_leaf,
        show_default=False,
    ),
]
