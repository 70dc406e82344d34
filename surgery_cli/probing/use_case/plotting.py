"""Draws the scale of activations and gradients by depth, so that the layer where two runs part can be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import SurgeryError

SUFFIXES: Final = (".png", ".svg", ".pdf")
_MOST_NAMES: Final = 60
"""More names than this cannot be read below one axis."""


class Curve(msgspec.Struct, frozen=True):
    """One run: for each place a root mean square, None where it has none, NaN or infinite where it is not finite."""

    title: str
    values: list[float | None]


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


def draw(path: Path, names: Sequence[str], panels: Sequence[tuple[str, Sequence[Curve]]]) -> None:
    """Draw one panel below the other, each with a title and its curves over the places ``names``."""
    from matplotlib.figure import Figure

    width = min(max(6.0, 0.35 * len(names) + 2), 24.0)
    figure = Figure(figsize=(width, 1.2 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (title, curves) in zip(axes, panels, strict=True):
        _draw_panel(axis, title, curves)
    if len(names) <= _MOST_NAMES:
        axes[-1].set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    else:
        axes[-1].set_xlabel("calls in the order in which they finish")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_panel(axis: Any, title: str, curves: Sequence[Curve]) -> None:
    for curve, style in zip(curves, ("o-", "s--"), strict=False):
        places = [
            at for at, v in enumerate(curve.values) if v is not None and math.isfinite(v) and v > 0
        ]
        axis.plot(
            places, [curve.values[at] for at in places], style, label=curve.title, markersize=4
        )
        bad = [at for at, v in enumerate(curve.values) if v is not None and not math.isfinite(v)]
        for at in bad:
            axis.axvline(at, color="tab:red", alpha=0.4)
    axis.set_yscale("log")
    axis.set_ylabel(title)
    axis.grid(visible=True, alpha=0.3)
    if len(curves) > 1:
        axis.legend(fontsize=8)
