"""What stands in advice for something that only the user knows: pasted as it is, it is refused."""

from __future__ import annotations

from collections.abc import Mapping
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
    return slots_lines({str(node): fields})


def slots_lines(entries: Mapping[str, Mapping[str, str]]) -> str:
    """The same for several trees at once.

    >>> slots_lines({"m": {"power": "K"}, "v": {"power": "K"}})
    '`slots: {m: {power: K}, v: {power: K}}`'
    """
    said = (
        f"{node}: {{{', '.join(f'{name}: {value}' for name, value in fields.items())}}}"
        for node, fields in entries.items()
    )
    return f"`slots: {{{', '.join(said)}}}`"
