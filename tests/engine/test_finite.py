"""The look for NaN and infinity agrees with NumPy and ml_dtypes for every value there is."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from surgery_cli.draft.finite_bits import are_finite
from surgery_cli.engine.finite import PART_ELEMENTS, all_finite, count_non_finite
from surgery_cli.store.write.array_access import are_same

EIGHT_BITS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4", "float8_e8m0fnu"]
LIMITS = [np.float32, np.float64, np.complex64, np.complex128]


def _every(dtype: np.dtype) -> np.ndarray:
    """Every value of a type of at most 16 bits."""
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    return bits.view(dtype)


def _by_the_field(values: np.ndarray) -> tuple[int, int]:
    with np.errstate(invalid="ignore"):  # ml_dtypes lets bits of signalling NaN say so
        nan, infinite = np.isnan(values), np.isinf(values)
    return int(nan.sum()), int(infinite.sum())


@pytest.mark.parametrize("name", ["bfloat16", "float16", *EIGHT_BITS])
def test_each_value_of_a_short_type_is_told_as_its_library_tells_it(name) -> None:
    values = _every(np.dtype(getattr(ml_dtypes, name, name)))
    assert count_non_finite(values) == _by_the_field(values)
    with np.errstate(invalid="ignore"):
        is_finite = np.isfinite(values)
    told = [all_finite(values[at : at + 1]) for at in range(values.size)]
    assert told == is_finite.tolist()
    assert all_finite(values[is_finite])


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64"])
def test_jax_tells_by_the_same_bits(name) -> None:
    with jax.enable_x64(True):
        for bad in (np.nan, -np.nan, np.inf, -np.inf, 0):
            values = jnp.asarray([1, bad, -2], name)
            assert are_finite(values) is (None if name == "float64" else bad == 0)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_each_limit_of_a_long_type_is_told_as_numpy_tells_it(dtype, order) -> None:
    part = np.zeros(1, dtype).real.dtype
    info = np.finfo(part)
    limits = [0, info.max, info.smallest_subnormal, np.inf, np.nan]
    if part == np.float32:  # NaN with the least and the greatest payload
        limits += np.array([0x7F80_0001, 0x7FFF_FFFF], np.uint32).view(np.float32).tolist()
    real = np.array([*limits, *np.negative(limits)], part)
    values = real
    if dtype != part:
        values = np.ones(2 * real.size, dtype)
        values.real[: real.size], values.imag[real.size :] = real, real
    values = values.astype(np.dtype(dtype).newbyteorder(order))
    for one in values:
        with np.errstate(invalid="ignore"):
            assert all_finite(np.array([one, 1], values.dtype)) == bool(np.isfinite(one))


@pytest.mark.parametrize("at", [0, PART_ELEMENTS - 1, PART_ELEMENTS, 2 * PART_ELEMENTS])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_single_one_is_found_in_every_part(at, bad) -> None:
    values = np.full(2 * PART_ELEMENTS + 1, -1, np.float32)
    assert all_finite(values)
    values[at] = bad
    assert not all_finite(values)
    assert sum(count_non_finite(values)) == 1


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_, ml_dtypes.int4])
def test_whole_numbers_are_finite(dtype) -> None:
    assert all_finite(np.ones(3, dtype))
    assert count_non_finite(np.ones(3, dtype)) == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 31])
def test_bytes_that_were_read_back_are_the_same_or_not_in_every_place(size) -> None:
    one = np.arange(size, dtype=np.uint8)
    assert are_same(one, one.copy())
    assert not are_same(one, np.arange(size + 1, dtype=np.uint8))
    for at in range(size):
        other = one.copy()
        other[at] ^= 1
        assert not are_same(one, other)
