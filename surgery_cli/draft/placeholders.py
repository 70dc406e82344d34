"""What stands in advice for something that only the user knows: pasted as it is, it is refused."""

from __future__ import annotations

from typing import Final

from surgery_cli.tree.paths import LeafPath

FACTORY: Final = "NAME"
"""No factory of optax is called so."""

NODE: Final = "NODE"
"""A node of params, in `of:`."""

KIND: Final = f"`--optimizer-kind {FACTORY}`"


def slots_line(node: LeafPath | str, **fields: str) -> str:
    """The entry of `slots:` for a tree, whose values are placeholders.

    >>> slots_line("opt_state/1/ema", power="K")
    '`slots: {opt_state/1/ema: {power: K}}`'
    """
    said = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"`slots: {{{node}: {{{said}}}}}`"
