"""The dtypes that leaves have: their names, families, widths, and the numbers that they hold."""

from __future__ import annotations

import math
from typing import Final, NamedTuple


class Float(NamedTuple):
    """A floating dtype: bytes, bits of the fraction, least exponent of a normal number, largest number."""

    bytes: int
    fraction_bits: int
    least_exponent: int
    largest: float
    has_infinities: bool = True

    @property
    def least_normal(self) -> float:
        """The smallest normal number above 0."""
        return math.ldexp(1.0, self.least_exponent)

    @property
    def least(self) -> float:
        """The smallest number above 0."""
        return math.ldexp(1.0, self.least_exponent - self.fraction_bits)

    @property
    def rounding(self) -> float:
        """By how much rounding to the dtype changes a normal number at most, relative to it."""
        return math.ldexp(1.0, -1 - self.fraction_bits)


class Rounding(NamedTuple):
    """To nearest even, from the dtype in which values are stored to another one; both by their names."""

    stored: str
    to: str


FLOATS: Final = {
    "float64": Float(8, 52, -1022, 1.7976931348623157e308),
    "float32": Float(4, 23, -126, 3.4028234663852886e38),
    "bfloat16": Float(2, 7, -126, 3.3895313892515355e38),
    "float16": Float(2, 10, -14, 65504.0),
    "float8_e3m4": Float(1, 4, -2, 15.5),
    "float8_e4m3": Float(1, 3, -6, 240.0),
    "float8_e4m3fn": Float(1, 3, -6, 448.0, has_infinities=False),
    "float8_e4m3fnuz": Float(1, 3, -7, 240.0, has_infinities=False),
    "float8_e4m3b11fnuz": Float(1, 3, -10, 30.0, has_infinities=False),
    "float8_e5m2": Float(1, 2, -14, 57344.0),
    "float8_e5m2fnuz": Float(1, 2, -15, 57344.0, has_infinities=False),
    "float8_e8m0fnu": Float(1, 0, -127, 2.0**127, has_infinities=False),
    "float6_e2m3fn": Float(1, 3, 0, 7.5, has_infinities=False),
    "float6_e3m2fn": Float(1, 2, -2, 28.0, has_infinities=False),
    "float4_e2m1fn": Float(1, 1, 0, 6.0, has_infinities=False),
}
"""Real floating dtypes."""

COMPLEX_PARTS: Final = {"complex64": "float32", "complex128": "float64"}
"""Complex dtypes, with that of their parts."""

INTEGER_BITS: Final = {
    f"{sign}int{bits}": bits for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)
}

_ITEM_BYTES: Final = {
    "bool": 1,
    **{name: max(bits // 8, 1) for name, bits in INTEGER_BITS.items()},
    **{name: dtype.bytes for name, dtype in FLOATS.items()},
    **{name: 2 * FLOATS[part].bytes for name, part in COMPLEX_PARTS.items()},
}


KNOWN_DTYPES: Final = tuple(_ITEM_BYTES)
"""Every dtype of numbers and booleans that a leaf may have."""


def item_bytes(dtype: str) -> int:
    """Bytes of one element in memory; sub-byte types take one byte, as in NumPy with ml_dtypes.

    >>> item_bytes("bfloat16"), item_bytes("float8_e4m3fn"), item_bytes("int4"), item_bytes("complex64")
    (2, 1, 1, 8)

    Raises:
        KeyError: no leaf has such a dtype.
    """
    return _ITEM_BYTES[dtype]


def is_known(dtype: str) -> bool:
    """True for the dtypes that leaves may have: numbers and booleans, by NumPy's name."""
    return dtype in _ITEM_BYTES


def is_floating(dtype: str) -> bool:
    """True for real floating dtypes, bfloat16 and float8 among them; complex is not floating."""
    return dtype in FLOATS


def is_complex(dtype: str) -> bool:
    return dtype in COMPLEX_PARTS


def is_integer(dtype: str) -> bool:
    return dtype in INTEGER_BITS


def family(dtype: str) -> str:
    """``float``, ``integer``, ``complex``, or the dtype itself (``bool``): how far a Python number tells."""
    if dtype in FLOATS:
        return "float"
    if dtype in INTEGER_BITS:
        return "integer"
    return "complex" if dtype in COMPLEX_PARTS else dtype


def is_finite_only(dtype: str) -> bool:
    """True for floating dtypes without infinities."""
    return dtype in FLOATS and not FLOATS[dtype].has_infinities


def part_of(dtype: str) -> Float:
    """The floating dtype itself, or that of the parts of a complex one.

    >>> part_of("complex64").largest == part_of("float32").largest
    True
    """
    return FLOATS[COMPLEX_PARTS.get(dtype, dtype)]


def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer dtype.

    >>> integer_range("int4"), integer_range("uint8")
    ((-8, 7), (0, 255))
    """
    bits = INTEGER_BITS[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def can_be_shape(shape: tuple[int, ...], width: int) -> bool:
    """True if NumPy can make an array of that shape, with ``width`` bytes to an element.

    Where an axis is 0, the others are still bounded together.
    """
    sizes = [size for size in shape if size != 0]
    return min(sizes, default=1) > 0 and math.prod(sizes) * width < 1 << 63


WIDE: Final = frozenset({"int64", "uint64", "float64", "complex128"})
"""What JAX holds in half the bits, unless a script sets `jax_enable_x64`."""


def rounded(number: float, dtype: str) -> float:
    """The number as a floating dtype holds it: to nearest even, beyond the largest infinite.

    >>> rounded(0.999, "bfloat16"), rounded(0.999, "float16"), rounded(1e-8, "float16")
    (1.0, 0.9990234375, 0.0)
    """
    if not number or not math.isfinite(number):
        return number
    held = FLOATS[dtype]
    exponent = max(math.frexp(number)[1] - 1, held.least_exponent) - held.fraction_bits
    nearest = math.ldexp(round(math.ldexp(number, -exponent)), exponent)
    return nearest if abs(nearest) <= held.largest else math.copysign(math.inf, nearest)
