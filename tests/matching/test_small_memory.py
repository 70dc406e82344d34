"""With however little memory: what `derive` says that it makes is what it makes, or it is said as a gap."""

import json

import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import saved

SIZES = [(12, 20), (64, 64), (300, 40), (1500, 200)]
MEMORIES = [1, 9_000, 300 << 10, 1 << 20, 1 << 30]


def with_rows_swapped(values):
    found = values.copy()
    found[[0, -1]] = found[[-1, 0]]
    return found


def with_two_values_swapped(values):
    found = values.copy()
    found.flat[[1, 7]] = found.flat[[7, 1]]
    return found


def with_another_value(values):
    found = values.copy()
    found.flat[3] += 1
    return found


def half_a_turn(values):
    return values.reshape(2, -1, values.shape[1]).swapaxes(0, 1).reshape(values.shape)


DIFFERENCES = {
    "the same": np.copy,
    "rows swapped": with_rows_swapped,
    "two values swapped": with_two_values_swapped,
    "another value": with_another_value,
    "transposed": np.transpose,
    "transposed, and rows swapped": lambda values: with_rows_swapped(values.T),
    "halves in turns": half_a_turn,
    "an axis cut": lambda values: values.reshape(values.shape[0], -1, 4),
    "an axis cut, and rows swapped": lambda values: with_rows_swapped(values).reshape(values.shape[0], -1, 4),
    "the other way round": lambda values: values[::-1],
    "rounded": lambda values: values.astype(np.float16),
    "rounded, and rows swapped": lambda values: with_rows_swapped(values).astype(np.float16),
}  # fmt: skip


@pytest.mark.covers(2)
@pytest.mark.parametrize("name", ["embed", "emb"])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_what_a_plan_makes_is_what_stands_there_or_a_gap(tmp_path, difference, size, memory, name):
    """It proposed a rename of values that it had found to be others in place, and called it whole."""
    draw = np.random.default_rng(0).standard_normal
    leaf, other = draw(size).astype(np.float32), draw(64).astype(np.float32)
    changed = np.ascontiguousarray(DIFFERENCES[difference](leaf))
    a = saved(tmp_path / "a", {"params": {"emb": leaf, "h": other}})
    b = saved(tmp_path / "b", {"params": {name: changed, "h": other}})
    found = surgery.derive(str(a), str(b), memory_bytes=memory)
    if found.gaps:
        assert difference != "the same"
        return
    made = str(a)
    if found.plan["edits"]:
        made = str(tmp_path / "made")
        surgery.apply(str(a), made, plan_from_document(json.loads(json.dumps(found.plan))))
    result = open_checkpoint(made)
    values = np.asarray(
        result.read(next(path for path in result.tree if str(path) == f"params/{name}"))
    )
    np.testing.assert_array_equal(values, changed)
