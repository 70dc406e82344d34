"""Merges one after the other, beside their formulas in NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.judge.targets import Target

TUNES = {
    f"tune-{n}": (np.arange(16).reshape(4, 4) % (n + 5) + 10 * n).astype(np.float32) / 8
    for n in range(2)
}
"""What two fine-tunes have in the place of a kernel."""


def merging(target: Target, donors: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    one, both = donors["tune-0"], [donors["tune-0"], donors["tune-1"]]
    at = {"at": target.path("Dense_1", "kernel")}
    return [
        ("interpolate", {**at, "with": one, "t": "0.25"}),
        ("interpolate", {**at, "with": one, "t": "0.25", "method": "slerp"}),
        ("task-arithmetic", {**at, "with": both, "scale": "0.5"}),
        ("ties", {**at, "with": both, "density": "0.5"}),
        ("dare", {**at, "with": one, "density": "1", "scale": "0.5"}),
        ("breadcrumbs", {**at, "with": one, "density": "0.5", "outliers": "0.25"}),
        ("model-stock", {**at, "with": both}),
        ("karcher", {**at, "with": one}),
    ]


def merged(kernel: np.ndarray) -> np.ndarray:
    """The same, each in float64 and rounded once."""
    one, other = (values.astype(np.float64) for values in TUNES.values())
    steps = [
        lambda x: 0.75 * x + 0.25 * one,
        lambda x: _arc(x, one, 0.25),
        lambda x: x + 0.5 * (one - x + other - x),
        lambda x: x + _elected(_ranked(one - x, 0, 8), _ranked(other - x, 0, 8)),
        lambda x: x + 0.5 * (one - x),
        lambda x: x + _ranked(one - x, 4, 12),
        lambda x: _stock(x, one, other),
        lambda x: _half_way(x, one),
    ]
    for step in steps:
        kernel = step(kernel.astype(np.float64)).astype(kernel.dtype)
    return kernel


def _arc(a: Any, b: Any, t: float) -> Any:
    angle = np.arccos(np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))
    return (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)


def _ranked(delta: Any, first: int, last: int) -> Any:
    delta = delta.astype(np.float32).astype(np.float64).reshape(-1)
    left = np.zeros_like(delta)
    order = np.argsort(-np.abs(delta), kind="stable")[first:last]
    left[order] = delta[order]
    return left.reshape(4, 4)


def _elected(*deltas: Any) -> Any:
    stacked = np.stack(deltas)
    agrees = np.sign(stacked) == np.where(stacked.sum(0) >= 0, 1, -1)
    return (stacked * agrees).sum(0) / np.maximum(agrees.sum(0), 1)


def _stock(base: Any, one: Any, other: Any) -> Any:
    a, b = one - base, other - base
    cosine = np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
    return base + max(2 * cosine / (1 + cosine), 0) * (a + b) / 2


def _half_way(a: Any, b: Any) -> Any:
    norms = [np.linalg.norm(x) for x in (a, b)]
    return _arc(a / norms[0], b / norms[1], 0.5) * sum(norms) / 2
