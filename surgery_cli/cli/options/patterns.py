"""Patterns of leaves as arguments; the shell completes the paths inside the checkpoint that was named before."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_leaf(context: typer.Context, incomplete: str) -> list[str]:
    """Paths inside the checkpoint; none if it cannot be opened."""
    from surgery_cli import surgery

    given = context.params
    checkpoint = next((given[n] for n in ("source", "checkpoint", "a") if given.get(n)), None)
    if not isinstance(checkpoint, str):
        return []
    return surgery.complete_path(checkpoint, incomplete)


Patterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[AT]...",
        help="Patterns of leaves: `params/Dense_*`, `**/kernel`; all leaves if left out.",
        autocompletion=complete_leaf,
        show_default=False,
    ),
]
