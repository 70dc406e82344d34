"""Operands: arrays beside a leaf are read by the block, counted, and bounded by the budget like the leaf itself."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.expression import LeafRef, Made, Stored
from surgery_cli.draft.kernel import broadcast_window
from surgery_cli.draft.kernels.weighted_sum import WeightedMean
from surgery_cli.engine import forecast
from surgery_cli.engine.composition import Composition
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

MIB = 1 << 20
SHAPE = (12288, 512)
"""24 MiB in float32, which is two blocks."""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four checkpoints of one leaf in chunks of 1 MiB."""
    folder = tmp_path_factory.mktemp("operands")
    with ocp.PyTreeCheckpointer() as checkpointer:
        for seed in range(4):
            tile = np.random.default_rng(seed).standard_normal((512, 512), np.float32)
            arguments = {"w": ocp.SaveArgs(chunk_byte_size=MIB)}
            state = {"w": np.tile(tile, (24, 1))}
            checkpointer.save(folder / f"m{seed}", state, save_args=arguments)
    return [folder / f"m{seed}" for seed in range(4)]


def _leaf(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)["w"]


def _apply(source: Path, destination: Path, name: str, **fields: Any) -> Any:
    plan = plan_of([operation_from_options(name, {"at": "w", **fields})])
    return surgery.apply(str(source), str(destination), plan)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("shape", "times"),
    [(SHAPE, 1), ((SHAPE[0], 1), 1), ((SHAPE[1],), 2), ((1, 1), 2)],
    ids=["as the leaf", "a column", "a row", "one"],
)
def test_a_factor_is_read_by_the_block_and_counted_as_the_preview_says(
    members: list[Path],
    tmp_path: Path,
    shape: tuple[int, ...],
    times: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factor = np.random.default_rng(9).uniform(1, 2, shape).astype(np.float32)
    np.save(tmp_path / "factor.npy", factor)
    largest = 0
    read = ArrayFile.read

    def watched(self: ArrayFile, path: LeafPath, window: Any = None) -> Any:
        nonlocal largest
        values = read(self, path, window)
        largest = max(largest, values.nbytes)
        return values

    monkeypatch.setattr(ArrayFile, "read", watched)
    fields = {"at": "w", "by": str(tmp_path / "factor.npy")}
    plan = plan_of([operation_from_options("rescale", fields)])

    promised = surgery.plan(str(members[0]), plan).bytes_read
    report = surgery.apply(str(members[0]), str(tmp_path / "edited"), plan)

    np.testing.assert_array_equal(_leaf(tmp_path / "edited"), _leaf(members[0]) * factor)
    assert promised == report.bytes_read == 24 * MIB + times * factor.nbytes
    assert largest <= 16 * MIB


@pytest.mark.parametrize("count", [2, 4])
def test_a_mean_is_the_same_whether_members_are_kept_or_streamed(
    members: list[Path], tmp_path: Path, count: int
) -> None:
    """Two members are computed tile by tile, four are summed one after the other."""
    chosen = members[:count]

    report = _apply(chosen[0], tmp_path / "mean", "average", with_=[str(m) for m in chosen[1:]])

    wide = [_leaf(path).astype(np.float64) for path in chosen]
    np.testing.assert_array_equal(_leaf(tmp_path / "mean"), np.mean(wide, 0).astype(np.float32))
    assert report.bytes_read == count * 24 * MIB


def test_the_mean_of_equal_members_is_each_of_them_bit_by_bit(tmp_path: Path) -> None:
    values = np.array([-0.0, 0.0, 1e-45, -3.4e38, 1 / 3], np.float32)
    with ocp.PyTreeCheckpointer() as checkpointer:
        for name in "ab":
            state = {"w": values, "h": values[:3].astype(ml_dtypes.bfloat16)}
            checkpointer.save(tmp_path / name, state)

    _apply(tmp_path / "a", tmp_path / "mean", "average", with_=str(tmp_path / "b"))

    assert np.asarray(_leaf(tmp_path / "mean")).tobytes() == values.tobytes()


def test_two_members_leave_room_for_three_blocks_and_twenty_for_one() -> None:
    """Of one chunk of 16 MB each, in flight within 256 MiB."""
    spec = LeafSpec(kind=LeafKind.ARRAY, shape=(2000, 2000), dtype="float32")
    path = LeafPath(("w",))

    def needed(members: int) -> int:
        inputs = tuple(Stored(LeafRef(str(n), path), spec) for n in range(members))
        recipe = Made(WeightedMean(), inputs, spec, path)
        return forecast.working_bytes(Composition(recipe), spec.shape, 1 << 17) + 2 * spec.bytes

    assert 5 * 16_000_000 < needed(2) <= 256 * MIB // 3
    assert needed(20) == needed(4) <= 256 * MIB // 2


def test_a_window_of_an_operand_keeps_to_the_axes_that_it_has() -> None:
    window = (slice(2, 4), slice(0, 8), slice(5, 6))

    assert broadcast_window((4, 1, 9), window) == (
        slice(2, 4),
        slice(0, 1),
        slice(5, 6),
    )
    assert broadcast_window((9,), window) == (slice(5, 6),)
    assert broadcast_window((), window) == ()
