"""Statistics against NumPy in double precision, for sizes and values that are hard on float32."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from surgery_cli.probing.trace.statistics import measure

GENERATOR = np.random.default_rng(2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "values",
    [
        GENERATOR.standard_normal(1 << 21).astype(np.float32) + 3,
        GENERATOR.standard_normal((7, 10007)).astype(np.float32),
        GENERATOR.standard_normal((2, 3, 4)).astype(ml_dtypes.bfloat16),
        np.full((31,), 1e30, np.float32),
        np.linspace(-3.3e38, 1e38, 5000, dtype=np.float32),
        np.repeat(np.float32([3.3e38, -3.3e38, 1]), [900, 90, 10]),
        GENERATOR.integers(-5, 5, (9, 2)).astype(np.int32),
        np.ones((), np.float32),
    ],
    ids=[
        "long",
        "of two primes",
        "bfloat16",
        "large",
        "sum overflows",
        "range overflows",
        "integers",
        "scalar",
    ],
)
def test_moments_and_ranges_are_those_of_double_precision(values):
    floats, counts = jax.jit(measure)(values)
    x = values.astype(np.float64)

    expected = [x.mean(), x.std(), x.min(), x.max(), np.sqrt((x**2).mean())]
    np.testing.assert_allclose(floats, expected, rtol=2e-5, atol=1e-6 * np.abs(x).max())
    assert list(counts) == [(x == 0).sum(), 0, 0]


def test_values_that_are_not_finite_are_counted_and_left_out():
    values = np.array([[1, np.nan, np.inf], [3, -np.inf, 0]], np.float32)
    floats, counts = jax.jit(measure)(values)

    kept = np.array([1, 3, 0.0])
    np.testing.assert_allclose(
        floats, [kept.mean(), kept.std(), 0, 3, np.sqrt((kept**2).mean())], rtol=1e-6
    )
    assert list(counts) == [1, 1, 2]


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_of_an_empty_batch_nothing_is_known(shape):
    floats, counts = jax.jit(measure)(jnp.zeros(shape))

    assert np.isnan(floats).all()
    assert list(counts) == [0, 0, 0]
