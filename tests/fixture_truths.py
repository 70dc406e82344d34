"""The checkpoints in tests/fixtures and their true values."""

import hashlib
from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).parent / "fixtures"


def finished() -> list[str]:
    """Names of all fixtures by Orbax that have true values, as `orbax-0.5.10/odd_lst`."""
    suffix = ".truth.npz"
    found = sorted(FIXTURES.glob(f"orbax-*/*{suffix}"))
    return [str(path.relative_to(FIXTURES)).removesuffix(suffix) for path in found]


def unfinished() -> list[str]:
    return [str(path.relative_to(FIXTURES)) for path in sorted(FIXTURES.glob("*/*-tmp*"))]


def truths(name: str) -> dict[str, np.ndarray]:
    """True values by path: arrays, or for large ones a text that stands for them."""
    with np.load(FIXTURES / f"{name}.truth.npz") as stored:
        return dict(stored)


def truth_key(path: tuple[str | int, ...]) -> str:
    """The key under which the true value of a leaf stands."""
    return "/".join(map(str, path)).removesuffix("/value").replace("/", "|")


def is_true(value: np.ndarray, truth: np.ndarray) -> bool:
    """Whether a value that was read is the true one, bit by bit."""
    value = np.asarray(value)
    if value.dtype.name == "bfloat16":
        value = value.astype(np.float32)
    if truth.dtype.kind == "U":
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return str(truth) == f"{value.dtype.name}{list(value.shape)} sha256:{digest}"
    return value.shape == truth.shape and value.tobytes() == truth.astype(value.dtype).tobytes()
