"""Low-rank adapters for one kernel, in a file: what is drawn, and what NumPy makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

LAYOUTS = {
    "flax": "ir,ro->io",
    "peft": "ri,or->oi",
    "peft-transposed": "ri,or->io",
    "n r, m r -> m n": "nr,mr->mn",
}
"""How the axes stand, and the same for `numpy.einsum`."""


def shapes(layout: str, kernel: tuple[int, ...], rank: int) -> list[tuple[int, ...]]:
    """The shapes of A and B for a kernel."""
    factors, whole = LAYOUTS[layout].split("->")
    sizes = {"r": rank, **dict(zip(whole, kernel, strict=True))}
    return [tuple(sizes[x] for x in side) for side in factors.split(",")]


def write(folder: Path, sizes: list[tuple[int, ...]], seed: int) -> str:
    """A file with A and B of these shapes."""
    name = "-".join("x".join(map(str, shape)) for shape in sizes)
    path = folder / f"lora-{name}-{seed}.npz"
    draw = np.random.default_rng(seed)
    np.savez(path, a=draw.normal(size=sizes[0]), b=draw.normal(size=sizes[1]).astype("f4"))
    return str(path)


def fits(edit: Mapping[str, Any], kernel: tuple[int, ...]) -> bool:
    if len(kernel) != 2:
        return False
    with np.load(edit["with"]) as file:
        rank = file["a"].shape[LAYOUTS[edit["layout"]].split(",")[0].index("r")]
        return [file["a"].shape, file["b"].shape] == shapes(edit["layout"], kernel, rank)


def product(edit: Mapping[str, Any]) -> Any:
    """What is added, in float64."""
    with np.load(edit["with"]) as file:
        a, b = (file[name].astype("f8") for name in "ab")
    scale = edit.get("scale")
    if scale is None:
        rank = a.shape[LAYOUTS[edit["layout"]].split(",")[0].index("r")]
        scale = edit["alpha"] / (np.sqrt(rank) if edit.get("rslora") else rank)
    return scale * np.einsum(LAYOUTS[edit["layout"]], a, b)
