"""Draws the scale of activations and gradients by depth, so that the layer where two runs part can be seen."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import SurgeryError

SUFFIXES: Final = (".png", ".svg", ".pdf")
_MOST_NAMES: Final = 60
"""More names than this cannot be read below one axis."""

_PAGE_INCHES: Final = 11.0
"""Paper of either hemisphere, laid across, holds that beside its margins."""


class Curve(msgspec.Struct, frozen=True):
    """One run: for each place a number, None where it has none, NaN or infinite where it is not finite."""

    title: str
    values: list[float | None]


class Panel(msgspec.Struct, frozen=True):
    """One drawing of several, on the scale of its own; ``limit`` is what its values should stay below."""

    title: str
    curves: list[Curve]
    limit: float | None = None


class Block(msgspec.Struct, frozen=True):
    """Places next to each other that belong to one block of the model, as people number these: ``layers_7``."""

    name: str
    start: int
    stop: int


def check_plot(path: Path) -> None:
    """Refuse what cannot be drawn, before anything is computed.

    Raises:
        SurgeryError: the suffix is unknown, or matplotlib is not installed.
    """
    if path.suffix not in SUFFIXES:
        raise SurgeryError(
            f"'{path}' does not end in {', '.join(SUFFIXES)}",
            fix=f"e.g. `--plot {path.with_suffix('.svg')}`",
            field="plot",
        )
    if find_spec("matplotlib") is None:
        raise SurgeryError(
            "`--plot` needs matplotlib, which is not installed",
            fix="pip install 'surgery-cli[plot]'",
            field="plot",
        )


def blocks_of(names: Sequence[str]) -> list[Block]:
    """The blocks in which the places ``names`` stand: up to the first key with a number, else the first key.

    >>> [(block.name, block.stop) for block in blocks_of(["embed", "h/layers_0/up", "h/layers_0", "h/layers_1"])]
    [('embed', 1), ('h/layers_0', 3), ('h/layers_1', 4)]
    """
    blocks: list[Block] = []
    for at, name in enumerate(names):
        block = _block_of(name)
        start = blocks.pop().start if blocks and blocks[-1].name == block else at
        blocks.append(Block(block, start, at + 1))
    return blocks


def _block_of(name: str) -> str:
    keys = [
        key.partition("[")[0] for key in re.split("[/ ]", name)
    ]  # `[0]` is an array of a result
    numbered = (at for at, key in enumerate(keys) if key[-1:].isdigit())
    return "/".join(keys[: next(numbered, 0) + 1])


def draw(path: Path, names: Sequence[str], panels: Sequence[Panel], first: str | None) -> None:
    """Draw the panels one below the other over the places ``names``; ``first`` is the one to point at."""
    figure = figure_of(names, panels, first)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def figure_of(names: Sequence[str], panels: Sequence[Panel], first: str | None) -> Any:
    """The drawing, as wide as a page and as high as its panels need."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PAGE_INCHES, 1.4 + 2.2 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    blocks = blocks_of(names)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel, is_dense=len(names) > _MOST_NAMES)
        for block in blocks[1:]:
            axis.axvline(block.start - 0.5, color="0.85", linewidth=0.6, zorder=0)
        if first in names:
            axis.axvline(names.index(first), color="tab:red", linewidth=1)
    if first in names:
        at = names.index(first)
        side = "right" if at > len(names) / 2 else "left"
        title = axes[0].set_title(first, x=(at + 0.5) / len(names), color="tab:red", fontsize=8)
        title.set_horizontalalignment(side)
    axes[-1].set_xlim(-0.5, len(names) - 0.5)
    _name_places(axes[-1], names, blocks)
    return figure


def _name_places(axis: Any, names: Sequence[str], blocks: Sequence[Block]) -> None:
    """Each place by its name where these can be read; else the blocks, as far as they have room."""
    ticks: list[tuple[float, str]] = list(enumerate(names))
    if len(names) > _MOST_NAMES:
        ticks, free = [], -math.inf
        for block in blocks:
            if (middle := (block.start + block.stop - 1) / 2) >= free:
                ticks.append((middle, block.name))
                free = middle + len(names) / _MOST_NAMES
        axis.set_xlabel("blocks, in the order in which their calls finish")
    axis.set_xticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=7)
    axis.tick_params(axis="x", rotation=60, rotation_mode="anchor")
    for label in axis.get_xticklabels():
        label.set_horizontalalignment("right")


def _draw_panel(axis: Any, panel: Panel, *, is_dense: bool) -> None:
    styles = (
        (("-", "tab:blue"), ("--", "black")) if is_dense else (("o-", "tab:blue"), ("s--", "black"))
    )
    for curve, (style, color) in zip(panel.curves, styles, strict=False):
        # what is not drawn leaves a gap: NaN, infinities, and zeros, which have no logarithm
        shown = [
            v if v is not None and math.isfinite(v) and v > 0 else math.nan for v in curve.values
        ]
        axis.plot(shown, style, color=color, label=curve.title, markersize=3, linewidth=1.1)
        for at, value in enumerate(curve.values):
            if value is not None and not math.isfinite(value):
                axis.axvline(at, color="tab:red", alpha=0.4)
    if panel.limit:
        axis.axhline(panel.limit, color="0.4", linestyle=":", label=f"tolerance {panel.limit:g}")
    axis.set_yscale("log")
    axis.set_ylabel(panel.title)
    axis.grid(visible=True, axis="y", alpha=0.3)
    if len(panel.curves) > 1 or panel.limit:
        axis.legend(fontsize=8, loc="best")
