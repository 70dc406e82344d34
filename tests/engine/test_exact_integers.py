"""Integers that float64 does not hold: ends are exact, and deviation, norm and mean right, as Python's integers say."""

from fractions import Fraction
from math import isqrt
from typing import Any

import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.seen import BlockDigests, Differing, Moments, NonFinite, Sizes
from surgery_cli.engine.checks import taken_over
from surgery_cli.engine.looks import LOOKS, TILE_ELEMENTS, Cut, moments_of
from surgery_cli.planning import policy_of_value
from surgery_cli.proof.statistics import statistics
from surgery_cli.rules.bounds import Bounds

LEAVES = {
    "two": np.array([2**62 + 1, 2**62 + 3]),
    "last": np.array([2**64 - 1], np.uint64),
    "first": np.array([-(2**63), -(2**63) + 1]),
    "ends": np.array([-(2**63), 0, 2**63 - 1]),
    "seeds": np.random.default_rng(3).integers(0, 2**64, 500, np.uint64),
    "held": np.array([-(2**53), 2**53]),
    "small": np.array([3, -7, 12]),
}
MANY = np.random.default_rng(4).integers(0, 3, 3 * TILE_ELEMENTS + 5) + 2**62 + 511
"""In several tiles, whose means float64 tells apart by 1024 at best."""


def numbers(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What is measured, of Python's integers."""
    own = [int(n) for n in values.flat]
    mean = Fraction(sum(own), len(own))
    variance = sum((n - mean) ** 2 for n in own) / len(own)
    return {
        "absmax": max(map(abs, own)),
        "std": root(variance),
        "norm": root(Fraction(sum(n * n for n in own))),
        "mean": float(mean),
        "zeros": own.count(0),
    }


def root(of: Fraction) -> float:
    digits = 10**40
    return float(Fraction(isqrt(of.numerator * digits * digits // of.denominator), digits))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("integers") / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, dict(LEAVES))
    return str(path)


def holds(source: str, at: str, **rule: Any) -> bool:
    return surgery.check(source, policy_of_value([{"at": at, **rule}])).holds


@pytest.mark.parametrize("name", LEAVES)
def test_bounds_of_the_largest_magnitude_are_compared_as_integers(source: str, name: str) -> None:
    largest = numbers(LEAVES[name])["absmax"]
    for bounds, is_within in (
        (f"..{largest}", True),
        (f"..{largest - 1}", False),
        (f"{largest}..", True),
        (f"{largest + 1}..", False),
        (largest, True),
        (largest - 1, False),
    ):
        assert holds(source, name, absmax=bounds) is is_within, bounds


def test_what_is_said_is_not_rounded(source: str) -> None:
    (rule,) = surgery.check(
        source, policy_of_value([{"at": "two", "absmax": "0.5..4611686018427387906"}])
    ).rules
    assert rule.rules == ["absmax 0.5..4611686018427387906"]
    assert [problem.why for problem in rule.findings] == ["its absmax is `4611686018427387907`"]
    assert (rule.least, rule.most) == (2**62 + 3, 2**62 + 3)


@pytest.mark.parametrize("name", LEAVES)
def test_deviation_and_norm_are_right_to_float64(source: str, name: str) -> None:
    for rule in ("std", "norm"):
        expected = numbers(LEAVES[name])[rule]
        low, high = expected * (1 - 1e-14), expected * (1 + 1e-14)
        assert holds(source, name, **{rule: f"{low!r}..{high!r}"}), rule
    assert holds(source, name, std=0) is (name == "last")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("values", [*LEAVES.values(), MANY], ids=[*LEAVES, "many"])
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_statistics_are_those_of_the_integers(values: np.ndarray[Any, Any], parts: int) -> None:
    found = statistics(lambda: [part for part in np.array_split(values, parts) if part.size])
    want = numbers(values)
    assert (found.min, found.max) == (int(values.min()), int(values.max()))
    assert found.std == pytest.approx(want["std"], rel=1e-12)
    assert found.norm == pytest.approx(want["norm"], rel=1e-14)
    assert found.mean == pytest.approx(want["mean"], rel=1e-15, abs=1)
    assert (found.zeros, sum(found.histogram)) == (want["zeros"], values.size)
    if values.size > 1:
        assert found.histogram[0] > 0
        assert found.histogram[-1] > 0


def test_moments_do_not_depend_on_which_part_comes_first() -> None:
    parts = [LEAVES["small"], LEAVES["two"], LEAVES["first"], np.zeros(3)]
    want = numbers(np.concatenate([part.astype(object) for part in parts]))
    for order in (parts, parts[::-1]):
        found = moments_of(order[:1])
        for part in order[1:]:
            found = found.joined(moments_of([part]))
        assert found.std == pytest.approx(want["std"], rel=1e-14)
        assert found.norm == pytest.approx(want["norm"], rel=1e-14)
        assert max(abs(found.low), abs(found.high)) == 2**63


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("..4611686018427387906", "..4611686018427387906"),
        ("-9223372036854775808..", "-9223372036854775808.."),
        (18446744073709551615, "18446744073709551615"),
        ("0.1..100", "0.1..100"),
        ("0.1234567890123456..1e3", "0.1234567890123456..1000"),
        (0.30000000000000004, "0.30000000000000004"),
        ("1e-6..", "1e-06.."),
    ],
)
def test_bounds_are_printed_as_they_are(given: Any, printed: str) -> None:
    assert str(Bounds.of(given, "absmax")) == printed
    if ".." in printed:
        assert Bounds.of(printed, "absmax") == Bounds.of(given, "absmax")


SEEN: dict[type, Any] = {
    Moments: LEAVES["two"],
    NonFinite: np.array([1.0, np.nan]),
    Differing: np.arange(3),
    Sizes: np.array([3.0, 4.0]),
    BlockDigests: np.arange(4.0),
}


@pytest.mark.parametrize("kind", LOOKS)
def test_what_another_process_has_seen_joins_with_what_this_one_has(kind: Any) -> None:
    values = SEEN[kind]
    at = (slice(0, values.size),)
    seen = LOOKS[kind](values, Cut((2,)).block(at) if kind is BlockDigests else values + 1)
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(seen))
    taken = taken_over(kind, told)
    assert taken == seen
    assert taken.joined(seen) == seen.joined(taken)
