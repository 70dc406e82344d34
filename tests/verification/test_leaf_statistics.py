"""Streamed statistics of leaves are those of NumPy over the whole leaf."""

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.engine.looks import TILE_ELEMENTS, sizes_of
from surgery_cli.proof.statistics import BINS, statistics

RANDOM = np.random.default_rng(5)
DRAWN = RANDOM.normal(3.0, 2.0, 100_000)
WITH_ZEROS = np.where(RANDOM.random(1000) < 0.3, 0.0, 1.0 + RANDOM.random(1000))


@pytest.mark.parametrize(
    "values",
    [
        DRAWN.astype(np.float32),
        DRAWN.astype(ml_dtypes.bfloat16),
        (10 * DRAWN).astype(np.int32),
        DRAWN > 3,
        np.uint8([0, 255, 7]),
        1e12 + DRAWN,
        WITH_ZEROS.astype(np.float16),
        np.float32([3.5]),
        np.zeros((4, 4), np.float32),
        np.float64([-1.7e308, 1.7e308]) / 2**600,
    ],
    ids=lambda v: f"{v.dtype}-{v.size}",
)
@pytest.mark.parametrize("parts", [1, 3])
def test_statistics_are_those_of_the_whole_leaf(values: np.ndarray, parts: int) -> None:
    found = statistics(lambda: np.array_split(values.reshape(-1), parts))

    whole = values.reshape(-1).astype(np.float64)
    assert (found.min, found.max) == (whole.min(), whole.max())
    assert found.mean == pytest.approx(whole.mean(), rel=1e-12)
    assert found.std == pytest.approx(whole.std(), rel=1e-6)
    assert found.norm == pytest.approx(np.linalg.norm(whole), rel=1e-12)
    assert found.zeros == np.count_nonzero(whole == 0)
    assert found.non_finite == 0
    counts, _ = np.histogram(whole, BINS, (found.min, found.max))
    moved = np.abs(np.subtract(found.histogram, counts)).sum()
    assert moved <= values.size // 10_000  # values on an edge, as rounding has it


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    values = np.float32([np.nan, 1, np.inf, -np.inf, 3, 0, np.nan])
    found = statistics(lambda: [values[:3], values[3:]])
    assert (found.non_finite, found.zeros, found.min, found.max) == (4, 1, 0.0, 3.0)
    assert found.mean == pytest.approx(4 / 3)
    assert found.norm == pytest.approx(10**0.5)
    assert sum(found.histogram) == 3


def test_nothing_finite_is_said_so() -> None:
    found = statistics(lambda: [np.full(5, np.nan, np.float32)])
    assert found.non_finite == 5
    assert np.isnan(found.mean)
    assert found.histogram == []


def test_complex_values_are_looked_at_by_their_magnitude() -> None:
    values = np.complex64([3 + 4j, 0, 6 + 8j])
    found = statistics(lambda: [values])
    assert (found.min, found.max, found.zeros) == (0.0, 10.0, 1)
    assert found.norm == pytest.approx(np.linalg.norm(values))


def test_a_range_wider_than_the_largest_float64_has_a_histogram() -> None:
    found = statistics(lambda: [np.float64([-1.7e308, 0.0, 1.7e308])])
    assert (found.histogram[0], found.histogram[BINS // 2], found.histogram[-1]) == (1, 1, 1)


def test_the_values_themselves_are_left_as_they_are() -> None:
    values = DRAWN.copy()
    statistics(lambda: [values])
    np.testing.assert_array_equal(values, DRAWN)


SIZES = [
    2.0**exponent for exponent in (-1020, -900, -700, -401, -300, 0, 300, 401, 700, 1000, 1022)
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("beside", [0.0, *SIZES])
def test_squares_of_any_size_neither_overflow_nor_vanish(size: float, beside: float) -> None:
    """NumPy's longdouble has room for the squares of any float64."""
    drawn = np.random.default_rng(0).integers(-1, 4, 3 * TILE_ELEMENTS // 2) * (size / 4 or size)
    values = np.concatenate([drawn, np.full(TILE_ELEMENTS, beside)])
    found, exact = statistics(lambda: [values[:7], values[7:]]), values.astype(np.longdouble)
    with np.errstate(over="ignore"):
        norm = float(np.sqrt(np.sum(exact * exact)))
    assert found.norm == pytest.approx(norm, rel=1e-12, abs=5e-324)
    mean = exact.mean()
    std = float(np.sqrt(np.mean((exact - mean) ** 2)))
    assert found.mean == pytest.approx(float(mean), rel=1e-9, abs=std * 1e-9 + 5e-324)
    assert found.std == pytest.approx(std, rel=1e-6, abs=5e-324)


@pytest.mark.parametrize("start", [1e16, -1e16, 1e300, 2.0**60])
@pytest.mark.parametrize("count", [6, 7, 1001])
def test_a_deviation_far_from_0_is_not_that_from_a_rounded_mean(start: float, count: int) -> None:
    step = np.spacing(abs(start))
    steps = np.arange(count, dtype=np.float64)
    found = statistics(lambda: [start + step * steps])
    assert found.std == pytest.approx(step * steps.std(), rel=1e-12)


@pytest.mark.parametrize("values", [[1.7e308] * 3, [-1.7e308, 1.7e308], [1.7e308, 1.0]])
def test_a_norm_is_infinite_only_where_it_is_beyond_float64(values: list[float]) -> None:
    found = statistics(lambda: [np.float64(values)])
    exact = np.sqrt(np.sum(np.longdouble(values) ** 2))
    assert (found.norm == np.inf) == (exact > np.finfo(np.float64).max)
    assert found.mean == pytest.approx(np.mean(np.float64(values) / 4) * 4)
    assert found.std == pytest.approx(float(np.std(np.longdouble(values))), abs=1e293)


@pytest.mark.parametrize("own", SIZES)
@pytest.mark.parametrize("other", SIZES)
def test_how_large_one_is_beside_another_is_told_of_any_sizes(own: float, other: float) -> None:
    each = [np.float64([1, -1, 1]) * own, np.float64([2, 0, 0]) * (other / 2 or other)]
    found = sizes_of(*each).joined(sizes_of(*each))
    squares = [np.sum(one.astype(np.longdouble) ** 2) for one in each]
    with np.errstate(over="ignore"):
        assert found.ratio == pytest.approx(
            float(np.sqrt(squares[1] / squares[0])), rel=1e-9, abs=5e-324
        )


@pytest.mark.parametrize("values", [[0.0, 5e-324], [0.0, 1e-323], [0.0, 1e-320]])
def test_a_range_of_denormal_numbers_has_a_histogram(values: list[float]) -> None:
    found = statistics(lambda: [np.float64(values)])
    assert sum(found.histogram) == 2
