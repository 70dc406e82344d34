"""Random values by counter: the generator against its authors' vectors, the distributions against theory."""

import statistics
import tracemalloc

import numpy as np
import pytest

from surgery_cli.compute.random import draw, normal_quantile, orthogonal, philox
from surgery_cli.draft.kernel import Place
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

PATH = LeafPath(("w",))


def place(shape: tuple[int, ...], start: tuple[int, ...], block: tuple[int, ...]) -> Place:
    spec = LeafSpec(kind=LeafKind.ARRAY, shape=shape, dtype="float32")
    return Place(PATH, (spec,), spec, start, block)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(
    counter: tuple, key: tuple, expected: tuple
) -> None:
    words = philox(tuple(np.array([word], np.uint64) for word in counter), key)
    assert tuple(int(word[0]) for word in words) == expected


def test_the_normal_quantile_is_exact_to_the_last_digits() -> None:
    shares = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 501), 10.0 ** -np.arange(7, 300, 9)])
    expected = [statistics.NormalDist().inv_cdf(share) for share in shares]
    np.testing.assert_allclose(normal_quantile(shares), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("block", [(7, 9, 11), (3, 4, 5), (1, 9, 11), (7, 1, 2)])
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_any_block_has_the_values_that_it_has_in_the_whole(
    distribution: str, block: tuple[int, ...]
) -> None:
    shape = (7, 9, 11)
    whole = draw(distribution, 3, place(shape, (0, 0, 0), shape))
    for start in [(0, 0, 0), tuple(n - b for n, b in zip(shape, block, strict=True))]:
        window = tuple(slice(s, s + b) for s, b in zip(start, block, strict=True))
        np.testing.assert_array_equal(
            draw(distribution, 3, place(shape, start, block)), whole[window]
        )


def test_a_leaf_longer_than_a_piece_is_drawn_without_a_seam() -> None:
    length = 50_000
    whole = draw("uniform", 0, place((length,), (0,), (length,)))
    assert len(np.unique(whole)) == length
    np.testing.assert_array_equal(
        draw("uniform", 0, place((length,), (40_000,), (100,))), whole[40_000:40_100]
    )


def test_counters_beyond_32_bits_differ_from_those_below() -> None:
    shape = (2**33,)
    low = draw("uniform", 0, place(shape, (0,), (8,)))
    high = draw("uniform", 0, place(shape, (2**32,), (8,)))
    assert not np.any(low == high)


def test_scalars_and_leaves_without_elements_have_their_shapes() -> None:
    assert draw("normal", 0, place((), (), ())).shape == ()
    assert draw("normal", 0, place((0, 4), (0, 0), (0, 4))).shape == (0, 4)


def test_uniform_values_fill_the_unit_interval_evenly() -> None:
    values = draw("uniform", 1, place((100_000,), (0,), (100_000,)))
    assert 0 <= values.min() < values.max() < 1
    counts = np.histogram(values, 10, (0, 1))[0]
    assert abs(counts - 10_000).max() < 400


def test_normal_values_have_the_moments_of_a_normal_distribution() -> None:
    values = draw("normal", 1, place((400, 500), (0, 0), (400, 500)))
    moments = [np.mean(values**n) for n in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.06)


@pytest.mark.parametrize(
    ("lower", "upper"), [(-2.0, 2.0), (1.0, 1.5), (8.0, 9.0), (-37.0, -36.0), (-np.inf, 0.0)]
)
def test_truncated_values_stay_within_their_bounds_and_differ(lower: float, upper: float) -> None:
    values = draw("truncated_normal", 1, place((1000,), (0,), (1000,)), lower=lower, upper=upper)
    assert values.min() >= lower
    assert values.max() <= upper
    assert len(np.unique(values)) > 900


@pytest.mark.parametrize("shape", [(170, 200), (200, 170), (1, 5), (5, 1)])
def test_an_orthogonal_matrix_is_the_q_of_the_normal_values_of_the_leaf(
    shape: tuple[int, int],
) -> None:
    tall = (max(shape), min(shape))
    q, r = np.linalg.qr(draw("normal", 3, place(tall, (0, 0), tall)))
    expected = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    drawn = orthogonal(3, place(shape, (0, 0), shape), -1, is_delta=False)
    np.testing.assert_array_equal(drawn, expected.T if shape[0] < shape[1] else expected)


@pytest.mark.parametrize("column_axis", [0, -1])
def test_drawing_an_orthogonal_matrix_takes_three_more_like_it_at_most(column_axis: int) -> None:
    shape = (200, 600)
    tracemalloc.start()
    try:
        drawn = orthogonal(0, place(shape, (0, 0), shape), column_axis, is_delta=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert drawn.flags.c_contiguous
    assert peak < 4 * drawn.nbytes + (4 << 20)  # and the temporaries of a piece
