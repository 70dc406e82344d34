"""The table of dtypes says what NumPy and ml_dtypes do."""

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.tree import dtypes

OF_ML_DTYPES = {
    name
    for name in dir(ml_dtypes)
    if isinstance(getattr(ml_dtypes, name), type) and name.startswith(("float", "bfloat"))
}


def test_every_float_is_in_the_table():
    assert {*dtypes.FLOATS} == OF_ML_DTYPES | {"float16", "float32", "float64"}


@pytest.mark.parametrize("name", dtypes.FLOATS)
def test_a_float_holds_what_the_table_says(name):
    row, dtype = dtypes.FLOATS[name], numpy_dtype(name)
    limits = ml_dtypes.finfo(dtype)
    assert (row.largest, row.least_normal) == (float(limits.max), float(limits.smallest_normal))
    if row.fraction_bits:  # a scale without fraction has no subnormals
        assert row.least == float(limits.smallest_subnormal)
        assert row.rounding == float(limits.eps) / 2
    with np.errstate(all="ignore"):
        assert row.has_infinities == bool(np.isinf(np.float32(np.inf).astype(dtype).astype(float)))


@pytest.mark.parametrize("name", dtypes.INTEGER_BITS)
def test_an_integer_dtype_has_the_range_of_the_table(name):
    limits = ml_dtypes.iinfo(numpy_dtype(name))
    assert dtypes.integer_range(name) == (int(limits.min), int(limits.max))


@pytest.mark.parametrize(
    "name", [*dtypes.FLOATS, *dtypes.INTEGER_BITS, *dtypes.COMPLEX_PARTS, "bool"]
)
def test_every_dtype_has_its_width_and_one_family(name):
    dtype = numpy_dtype(name)
    assert (dtype.name, dtype.itemsize) == (name, dtypes.item_bytes(name))
    sorts = [dtypes.is_floating(name), dtypes.is_integer(name), dtypes.is_complex(name)]
    assert sum(sorts) == (name != "bool")


def test_what_is_no_dtype_of_a_leaf_is_not_known():
    for name in ("", "str", "float0", "key<fry>", "object", "float128", "finfo", "f4"):
        assert not dtypes.is_known(name), name
