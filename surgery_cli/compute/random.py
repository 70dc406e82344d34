"""Random values by counter: element ``i`` of a leaf comes from counter ``i``, so blocks and devices do not matter."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from surgery_cli.draft.kernel import Place
from surgery_cli.tree.paths import LeafPath

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

_PIECE = 1 << 14
"""Elements that are drawn together: their temporaries stay in the processor's cache."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, ...]:
    """Philox 4x32-10: four 32-bit words (held in uint64) for every counter of four such words.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a = c0 * np.uint64(0xD2511F53)
        b = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> _HALF) ^ c1 ^ np.uint64(k0),
            b & _LOW,
            (a >> _HALF) ^ c3 ^ np.uint64(k1),
            a & _LOW,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def key_of(seed: int, path: LeafPath) -> tuple[int, int]:
    """The Philox key of a leaf: 64 bits of SHA-256 over the seed and the path's unambiguous spelling."""
    digest = hashlib.sha256(f"{seed}:{path.spelling}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def draw(distribution: str, seed: int, at: Place, **bounds: float) -> Floats:
    """Random values of one block: float64 [block's shape].

    ``distribution``: ``uniform`` in [0, 1), ``normal`` (standard), ``truncated_normal`` (standard, within
    ``lower`` and ``upper``).
    """
    key = key_of(seed, at.path)
    drawn = [
        _SAMPLERS[distribution](_bits(elements, key), **bounds)
        for elements in _pieces(at.output.shape, at.start, at.shape)
    ]
    flat = np.concatenate(drawn) if drawn else np.zeros(0)
    return flat.reshape(at.shape)


def orthogonal(seed: int, at: Place, column_axis: int, *, is_delta: bool) -> Floats:
    """A whole leaf, float64 [leaf's shape], as a matrix whose columns stand along ``column_axis``.

    Its rows or its columns, whichever are fewer, are orthonormal. ``is_delta``: such a matrix over the last two axes in
    the centre of all others, and zeros around it.

    Source: jax.nn.initializers.orthogonal and delta_orthogonal.
    """
    whole = at.output.shape
    shape = whole[-2:] if is_delta else whole
    columns = shape[column_axis]
    matrix = _orthonormal(key_of(seed, at.path), math.prod(shape) // columns, columns)
    rest = [size for axis, size in enumerate(shape) if axis != column_axis % len(shape)]
    kernel = np.moveaxis(matrix.reshape(*rest, columns), -1, column_axis)
    if not is_delta:
        return np.ascontiguousarray(kernel)
    leaf = np.zeros(whole)
    leaf[tuple((size - 1) // 2 for size in whole[:-2])] = kernel
    return leaf


def _orthonormal(key: tuple[int, int], rows: int, columns: int) -> Floats:
    """The Q of a normal matrix, with the signs of R's diagonal taken out: uniformly distributed."""
    tall = (max(rows, columns), min(rows, columns))
    q, r = np.linalg.qr(_normals(key, tall))
    q *= np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return np.ascontiguousarray(q.T) if rows < columns else q


def _normals(key: tuple[int, int], shape: tuple[int, int]) -> Floats:
    """A standard normal matrix, drawn a piece at a time: the temporaries of a draw are ten times its values."""
    values = np.empty(math.prod(shape))
    for start in range(0, values.size, _PIECE):
        elements = np.arange(start, min(start + _PIECE, values.size), dtype=np.uint64)
        values[start : start + _PIECE] = _normal(_bits(elements, key))
    return values.reshape(shape)


def _pieces(
    shape: tuple[int, ...], start: tuple[int, ...], block: tuple[int, ...]
) -> Iterator[Words]:
    """The C-order indices of a block's elements in their leaf, in the block's C order, a piece at a time."""
    if math.prod(block) == 0:
        return
    heads = np.zeros(1, np.uint64)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for first, size, stride in list(zip(start, block, strides, strict=True))[:-1]:
        along = np.arange(first, first + size, dtype=np.uint64) * np.uint64(stride)
        heads = (heads[:, None] + along).reshape(-1)
    first, size = (start[-1], block[-1]) if block else (0, 1)
    together = max(1, _PIECE // size)
    for head in range(0, len(heads), together):
        for tail in range(first, first + size, _PIECE):
            along = np.arange(tail, min(tail + _PIECE, first + size), dtype=np.uint64)
            yield (heads[head : head + together, None] + along).reshape(-1)


def _bits(elements: Words, key: tuple[int, int]) -> Words:
    """64 random bits for every element."""
    zero = np.zeros_like(elements)
    high, low, *_ = philox((elements & _LOW, elements >> _HALF, zero, zero), key)
    return (high << _HALF) | low


def _uniform(bits: Words) -> Floats:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _open_uniform(bits: Words) -> Floats:
    """Uniform in the open interval (0, 1), symmetric about one half."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _normal(bits: Words) -> Floats:
    return normal_quantile(_open_uniform(bits))


def _truncated_normal(bits: Words, lower: float, upper: float) -> Floats:
    if lower > 0:  # the upper tail has no digits left near one: draw its mirror image
        return -_truncated_normal(bits, -upper, -lower)
    low, high = (0.5 * math.erfc(-bound / math.sqrt(2)) for bound in (lower, upper))
    tiny = np.finfo(np.float64).tiny
    shares = np.clip(low + (high - low) * _open_uniform(bits), tiny, 1 - 2.0**-53)
    return np.clip(normal_quantile(shares), lower, upper)


_SAMPLERS: dict[str, Callable[..., Floats]] = {
    "uniform": _uniform,
    "normal": _normal,
    "truncated_normal": _truncated_normal,
}


def normal_quantile(shares: Floats) -> Floats:
    """The inverse of the standard normal distribution function, for ``shares`` in (0, 1); relative error 1e-15.

    Source: Wichura, algorithm AS 241 (PPND16), 1988.
    """
    centred = shares - 0.5
    central = 0.180625 - centred * centred
    values = centred * (_polynomial(_A, central) / _polynomial(_B, central))
    outer = np.flatnonzero(np.abs(centred) > 0.425)
    share = np.minimum(shares[outer], 1.0 - shares[outer])
    root = np.sqrt(-np.log(share))
    near = _polynomial(_C, root - 1.6) / _polynomial(_D, root - 1.6)
    far = _polynomial(_E, root - 5.0) / _polynomial(_F, root - 5.0)
    values[outer] = np.copysign(np.where(root <= 5.0, near, far), centred[outer])
    return values


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    """Horner's rule, the constant first."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value *= x
        value += coefficient
    return value


_A = (
    3.3871328727963666080e0,
    1.3314166789178437745e2,
    1.9715909503065514427e3,
    1.3731693765509461125e4,
    4.5921953931549871457e4,
    6.7265770927008700853e4,
    3.3430575583588128105e4,
    2.5090809287301226727e3,
)
_B = (
    1.0,
    4.2313330701600911252e1,
    6.8718700749205790830e2,
    5.3941960214247511077e3,
    2.1213794301586595867e4,
    3.9307895800092710610e4,
    2.8729085735721942674e4,
    5.2264952788528545610e3,
)
_C = (
    1.42343711074968357734e0,
    4.63033784615654529590e0,
    5.76949722146069140550e0,
    3.64784832476320460504e0,
    1.27045825245236838258e0,
    2.41780725177450611770e-1,
    2.27238449892691845833e-2,
    7.74545014278341407640e-4,
)
_D = (
    1.0,
    2.05319162663775882187e0,
    1.67638483018380384940e0,
    6.89767334985100004550e-1,
    1.48103976427480074590e-1,
    1.51986665636164571966e-2,
    5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)
_E = (
    6.65790464350110377720e0,
    5.46378491116411436990e0,
    1.78482653991729133580e0,
    2.96560571828504891230e-1,
    2.65321895265761230930e-2,
    1.24266094738807843860e-3,
    2.71155556874348757815e-5,
    2.01033439929228813265e-7,
)
_F = (
    1.0,
    5.99832206555887937690e-1,
    1.36929880922735805310e-1,
    1.48753612908506148525e-2,
    7.86869131145613259100e-4,
    1.84631831751005468180e-5,
    1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)
