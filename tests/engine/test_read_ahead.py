"""Of a large block that many leaves are streamed into, the next leaf is read while one is computed with."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import LeafRef, Made, Stored
from surgery_cli.draft.kernels.weighted_sum import WeightedMean
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.grid import BLOCK_BYTES
from surgery_cli.errors import CheckpointError
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import spec_of

W = LeafPath(("w",))
COUNT = 5
SHAPE = (BLOCK_BYTES // 4096, 1024)  # 16 MiB in one chunk
LEAF_BYTES = BLOCK_BYTES
ROOM = 2 * LEAF_BYTES
SECONDS = 30


class _Member:
    """A leaf that is read by whoever asks, and what is known of that."""

    every: list[_Member]

    def __init__(self, number: int, *, is_broken: bool = False) -> None:
        self.number, self.is_broken = number, is_broken
        self.begun = threading.Event()
        self.reader = ""
        self.values: weakref.ref[np.ndarray] | None = None
        self.alive_beside = 0

    def read(self, path: LeafPath, window: object = None) -> np.ndarray:
        self.reader = threading.current_thread().name
        self.alive_beside = sum(
            one.values is not None and one.values() is not None for one in self.every
        )
        self.begun.set()
        if self.is_broken:
            raise CheckpointError("'w' cannot be read", why="it is damaged", fix="copy it again")
        values = np.full(SHAPE, self.number + 1, np.float32)
        self.values = weakref.ref(values)
        return values


def _mean(spare_bytes: int, broken: int | None = None, kit: HostKit | None = None) -> tuple:
    members = [_Member(number, is_broken=number == broken) for number in range(COUNT)]
    _Member.every = members
    spec = spec_of(np.zeros(SHAPE, np.float32), chunk_shape=SHAPE, write_shape=SHAPE)
    stored = tuple(Stored(LeafRef(f"m{number}", W), spec) for number in range(COUNT))
    recipe = Made(WeightedMean(), stored, spec, W)
    sources = {f"m{member.number}": member for member in members}
    evaluation = Evaluation(recipe, sources, kit or HostKit(), SHAPE, spare_bytes=spare_bytes)
    return members, lambda: evaluation.block(tuple(slice(0, n) for n in SHAPE))


def test_the_next_leaf_is_being_read_while_one_goes_into_the_sums() -> None:
    members: list[_Member] = []

    class Waiting(HostKit):
        """Computes with a leaf only once the next one is being read."""

        def put(self, values, spec):
            number = int(values.flat[0]) - 1
            if number + 1 < COUNT:
                assert members[number + 1].begun.wait(SECONDS)
            return super().put(values, spec)

    members, make = _mean(ROOM, kit=Waiting())
    np.testing.assert_array_equal(make(), np.float32(3))


def test_no_more_than_two_leaves_are_in_memory() -> None:
    members, make = _mean(ROOM)
    np.testing.assert_array_equal(make(), np.float32(3))
    assert max(member.alive_beside for member in members) <= 1
    assert {member.reader.rsplit("_")[0] for member in members} == {"surgery-ahead"}


@pytest.mark.parametrize("spare", [0, ROOM - 1])
def test_without_room_for_two_each_is_read_when_its_turn_comes(spare: int) -> None:
    members, make = _mean(spare)
    np.testing.assert_array_equal(make(), np.float32(3))
    assert max(member.alive_beside for member in members) == 0
    assert {member.reader for member in members} == {threading.current_thread().name}


@pytest.mark.parametrize("broken", [0, 2, COUNT - 1])
def test_a_leaf_that_cannot_be_read_ahead_ends_the_block_and_its_thread(broken: int) -> None:
    _, make = _mean(ROOM, broken)
    with pytest.raises(CheckpointError, match="cannot be read"):
        make()
    assert not [one for one in threading.enumerate() if one.name.startswith("surgery-ahead")]


def test_a_block_that_cannot_be_computed_leaves_no_thread() -> None:
    class Failing(HostKit):
        def put(self, values, spec):
            raise MemoryError

    _, make = _mean(ROOM, kit=Failing())
    with pytest.raises(MemoryError):
        make()
    assert not [one for one in threading.enumerate() if one.name.startswith("surgery-ahead")]
