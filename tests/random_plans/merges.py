"""Merges as their papers say them, on whole arrays in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

Blocks = Sequence[Any]


class Merged(NamedTuple):
    """What comes of it; None where only the program can say.

    ``chooses``: which elements count depends on the last bits of the values.
    """

    values: Any
    is_known: bool = True
    chooses: bool = False


def _interpolate(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    (a, b), t = blocks, edit["t"]
    straight = (1 - t) * a + t * b
    if edit.get("method") is None:
        return Merged(straight)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    cosine = float(np.clip(np.real(np.vdot(a, b)) / norms, -1, 1)) if norms else 1.0
    most = 0.9995 if edit["method"] == "slerp" else 1 - 5e-13
    if abs(abs(cosine) - most) < 1e-9:
        return Merged(None, is_known=False)
    if abs(cosine) > most:
        return Merged(straight)
    angle = np.arccos(cosine)
    return Merged((np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle))


def _task_arithmetic(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    base, *others = blocks
    weights = edit.get("weights") or [1.0] * len(others)
    learnt = sum(w * (other - base) for w, other in zip(weights, others, strict=True))
    return Merged(base + edit["scale"] * learnt)


def _deltas(blocks: Blocks, dtype: str) -> list[Any]:
    wide = "float64" if dtype == "float64" else "float32"
    return [(other - blocks[0]).astype(wide).astype("float64") for other in blocks[1:]]


def _thinned(edit: Mapping[str, Any], blocks: Blocks, deltas: list[Any], *, elects: bool) -> Merged:
    base, normalize = blocks[0], edit.get("normalize", True)
    if not elects:
        total = sum(deltas) / (len(deltas) if normalize else 1)
        return Merged(base + total, chooses=edit["density"] < 1)
    stacked = np.stack(deltas)
    agrees = np.sign(stacked) == np.where(stacked.sum(0) >= 0, 1, -1)
    count = np.maximum(agrees.sum(0), 1) if normalize else 1
    return Merged(base + (stacked * agrees).sum(0) / count, chooses=True)


def _largest(delta: Any, first: int, last: int) -> Any:
    """A difference without all but the elements from one rank by size to another, in C order where they are equal."""
    flat = delta.reshape(-1)
    chosen = np.argsort(-np.abs(flat), kind="stable")[first:last]
    left = np.zeros_like(flat)
    left[chosen] = flat[chosen]
    return left.reshape(delta.shape)


def _ties(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    deltas = _deltas(blocks, dtype)
    size = deltas[0].size
    count = size - round((1 - edit["density"]) * size)
    return _thinned(edit, blocks, [_largest(each, 0, count) for each in deltas], elects=True)


def _breadcrumbs(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    deltas = _deltas(blocks, dtype)
    size = deltas[0].size
    count = size - round((1 - edit["density"]) * size)
    top = min(round(0.01 * size), size - count)
    left = [_largest(each, top, top + count) for each in deltas]
    return _thinned(edit, blocks, left, elects=edit["consensus"] == "ties")


def _dare(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    if edit["density"] < 1:
        return Merged(None, is_known=False)
    return _thinned(edit, blocks, _deltas(blocks, dtype), elects=edit["consensus"] == "ties")


def _model_stock(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    base, *others = blocks
    cosines = []
    for one, other in combinations([other - base for other in others], 2):
        norms = float(np.linalg.norm(one) * np.linalg.norm(other))
        cosines.append(np.real(np.vdot(one, other)) / norms if norms else 0.0)
    count, cosine = len(others), max(float(np.mean(cosines)), 0.0)
    ratio = count * cosine / (1 + (count - 1) * cosine)
    return Merged(ratio * sum(others) / count + (1 - ratio) * base)


def _karcher(edit: Mapping[str, Any], blocks: Blocks, dtype: str) -> Merged:
    return Merged(None, is_known=False)


FORMULAS: dict[str, Callable[[Mapping[str, Any], Blocks, str], Merged]] = {
    "interpolate": _interpolate,
    "task-arithmetic": _task_arithmetic,
    "ties": _ties,
    "dare": _dare,
    "breadcrumbs": _breadcrumbs,
    "model-stock": _model_stock,
    "karcher": _karcher,
}
