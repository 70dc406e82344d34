"""Statistics computed inside the compiled function, so that no activation has to leave it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

FLOATS = ("mean", "std", "min", "max", "rms")
COUNTS = ("zeros", "nan", "inf")
_SHRINK: Final = 2.0**-40
"""Times the largest float32, and summed over 2**40 values, it is still finite."""


def is_numeric(dtype: Any) -> bool:
    """False for typed keys, which have no values to speak of."""
    return not jnp.issubdtype(dtype, jax.dtypes.prng_key)


def is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def measure(values: Any) -> tuple[Any, Any]:
    """``FLOATS`` (float32[5], over finite values) and ``COUNTS`` (int32[3]) of an array of any numeric dtype.

    Complex values are measured by their magnitude.
    """
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        values = jnp.abs(values)
    x = values.astype(jnp.float32)
    finite = jnp.isfinite(x)
    held = jnp.where(finite, x, 0)
    total, small_total, low, high, zeros, nan, inf = _reduced(
        (held, 0.0, jnp.add),
        (held * _SHRINK, 0.0, jnp.add),
        (jnp.where(finite, x, jnp.inf), jnp.inf, jnp.minimum),
        (jnp.where(finite, x, -jnp.inf), -jnp.inf, jnp.maximum),
        (_ones(x == 0), 0, jnp.add),
        (_ones(jnp.isnan(x)), 0, jnp.add),
        (_ones(jnp.isinf(x)), 0, jnp.add),
    )
    count = x.size - nan - inf
    some = jnp.maximum(count, 1)
    # a sum of large values overflows; shrunk, it cannot, and only small ones would lose digits by it
    mean = jnp.where(jnp.isfinite(total), total / some, small_total / some / _SHRINK)
    # The largest magnitude is taken out, so that squares of large values do not overflow
    largest = jnp.where(count > 0, jnp.maximum(jnp.abs(low), jnp.abs(high)), 0)
    scale = jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)
    spread, power = _reduced(
        # halves, so that the difference of two large values is finite
        ((jnp.where(finite, x / 2 - mean / 2, 0) / scale) ** 2, 0.0, jnp.add),
        ((held / scale) ** 2, 0.0, jnp.add),
    )
    floats = jnp.stack(
        [mean, scale * (2 * jnp.sqrt(spread / some)), low, high, scale * jnp.sqrt(power / some)]
    )
    return jnp.where(count > 0, floats, jnp.nan), jnp.stack([zeros, nan, inf])


def _ones(condition: Any) -> Any:
    return condition.astype(jnp.int32)


def _reduced(*reductions: tuple[Any, float, Callable[[Any, Any], Any]]) -> Any:
    """Arrays of one shape, each with its start and its operation, reduced together in one pass.

    One pass over the values compiles and runs in less than half the time of one for each. It goes by rows, so that
    sums of many float32 keep their digits.
    """
    size = reductions[0][0].size
    columns = next(c for c in range(math.isqrt(max(size, 1)), 0, -1) if size % c == 0)
    values = tuple(array.reshape(-1, columns) for array, _, _ in reductions)
    starts = tuple(np.asarray(start, array.dtype) for array, start, _ in reductions)

    def together(a: Any, b: Any) -> Any:
        return tuple(
            operation(x, y) for x, y, (_, _, operation) in zip(a, b, reductions, strict=True)
        )

    rows = jax.lax.reduce(values, starts, together, (1,))
    return jax.lax.reduce(rows, starts, together, (0,))


def bad_counts(values: Any) -> Any:
    """How many values are NaN and how many infinite: int32[2]."""
    if not is_inexact(values.dtype):
        return jnp.zeros(2, jnp.int32)
    return jnp.stack(
        [jnp.isnan(values).sum(dtype=jnp.int32), jnp.isinf(values).sum(dtype=jnp.int32)]
    )


class Measured(msgspec.Struct, frozen=True):
    """Statistics of one array, or of all iterations of one together; ``size`` counts its elements."""

    mean: float
    std: float
    min: float
    max: float
    rms: float
    zeros: int
    nan: int
    inf: int
    size: int

    @property
    def non_finite(self) -> int:
        return self.nan + self.inf

    @property
    def zero_share(self) -> float:
        """The share of elements that are exactly zero, 0 to 1."""
        return self.zeros / self.size if self.size else 0.0


def together(floats: np.ndarray, counts: np.ndarray, size: int) -> Measured:
    """Statistics of several arrays of ``size`` elements each as of one: ``floats: [n, 5]``, ``counts: [n, 3]``."""
    zeros, nan, inf = (int(c) for c in counts.astype(np.int64).sum(axis=0))
    finite = size - counts[:, 1:].astype(np.int64).sum(axis=1)
    seen = finite > 0
    total = size * len(floats)
    if not seen.any():
        nothing = float("nan")
        return Measured(nothing, nothing, nothing, nothing, nothing, zeros, nan, inf, total)
    weights = finite[seen] / finite[seen].sum()
    mean, std, low, high, rms = floats[seen].astype(np.float64).T
    centre = float(weights @ mean)
    spread = float(np.sqrt(weights @ (std**2 + (mean - centre) ** 2)))
    return Measured(
        centre,
        spread,
        float(low.min()),
        float(high.max()),
        float(np.sqrt(weights @ rms**2)),
        zeros,
        nan,
        inf,
        total,
    )
