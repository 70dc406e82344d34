"""Averaging over checkpoints, held against float64 NumPy, with Orbax's own checkpoints as members."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.plan import operation_from_options, plan_of


def _state(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "params": {
            "w": random.standard_normal((40, 30), np.float32),
            "b": random.standard_normal(30).astype(ml_dtypes.bfloat16),
        },
        "step": np.int32(seed),
    }


def _save(path: Path, state: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return path


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("members")
    return [_save(folder / f"m{seed}", _state(seed)) for seed in range(20)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manager's root with the steps 10, 20, 30 and 40."""
    root = tmp_path_factory.mktemp("run") / "root"
    with ocp.CheckpointManager(root) as manager:
        for step in (10, 20, 30, 40):
            manager.save(step, args=ocp.args.StandardSave(_state(step)))
    return root


def _apply(source: object, destination: Path, **fields: Any) -> Any:
    plan = plan_of([operation_from_options("average", fields)])
    return surgery.apply(str(source), str(destination), plan)


def _mean(seeds: list[int], name: str, weights: list[float] | None = None) -> np.ndarray:
    leaves = [_state(seed)["params"][name].astype(np.float64) for seed in seeds]
    return np.average(leaves, axis=0, weights=weights)


def test_twenty_members_are_summed_in_float64_and_rounded_once(
    members: list[Path], tmp_path: Path
) -> None:
    others = [str(path) for path in members[1:]]

    report = _apply(members[0], tmp_path / "mean", at="params", with_=others)

    found = _restored(tmp_path / "mean")
    seeds = list(range(20))
    np.testing.assert_array_equal(found["params"]["w"], _mean(seeds, "w").astype(np.float32))
    expected = jnp.asarray(_mean(seeds, "b").astype(np.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(found["params"]["b"]), np.asarray(expected))
    assert found["params"]["b"].dtype == ml_dtypes.bfloat16
    assert report.bytes_read == 20 * (40 * 30 * 4 + 30 * 2)


def test_everything_that_is_not_averaged_comes_from_the_first_member(
    members: list[Path], tmp_path: Path
) -> None:
    _apply(members[3], tmp_path / "mean", at="params/w", with_=[str(members[4])])

    found = _restored(tmp_path / "mean")
    assert found["step"] == 3
    np.testing.assert_array_equal(np.asarray(found["params"]["b"]), _state(3)["params"]["b"])


def test_weights_are_relative(members: list[Path], tmp_path: Path) -> None:
    _apply(members[0], tmp_path / "mean", with_=[str(members[1])], weights=[3.0, 1.0])

    expected = _mean([0, 1], "w", [0.75, 0.25]).astype(np.float32)
    np.testing.assert_array_equal(_restored(tmp_path / "mean")["params"]["w"], expected)


def test_a_range_takes_the_other_steps_of_the_same_run(run: Path, tmp_path: Path) -> None:
    _apply(run, tmp_path / "mean", steps="15..40")

    with ocp.CheckpointManager(tmp_path / "mean") as manager:
        assert manager.all_steps() == [40]
        found = manager.restore(40, args=ocp.args.StandardRestore())
    expected = _mean([40, 20, 30], "w").astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found["params"]["w"]), expected)


def test_a_range_of_another_run_leaves_none_out(
    run: Path, members: list[Path], tmp_path: Path
) -> None:
    _apply(members[0], tmp_path / "mean", with_=str(run), steps="0..20")

    expected = _mean([0, 10, 20], "w").astype(np.float32)
    np.testing.assert_array_equal(_restored(tmp_path / "mean")["params"]["w"], expected)


def test_moments_that_are_averaged_too_are_not_reset(tmp_path: Path) -> None:
    import optax

    def state(seed: int) -> Any:
        params = _state(seed)["params"]["w"]
        adam = optax.ScaleByAdamState(np.int32(5), {"w": params / 7}, {"w": params**2})
        return {"params": {"w": params}, "opt_state": (adam, optax.EmptyState())}

    first, second = (_save(tmp_path / str(seed), state(seed)) for seed in (1, 2))

    _apply(first, tmp_path / "mean", with_=str(second))

    found = _restored(tmp_path / "mean")["opt_state"][0]
    for name, power, divisor in (("mu", 1, 7), ("nu", 2, 1)):
        leaves = [(_state(s)["params"]["w"] / np.float32(divisor)) ** power for s in (1, 2)]
        expected = np.mean(np.asarray(leaves, np.float64), axis=0).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(found[name]["w"]), expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "only one member"),
        ({"with_": "OTHER", "weights": [1.0, 2.0, 3.0]}, "3 weights for 2 members"),
        ({"with_": "OTHER", "weights": [1.0, -1.0]}, "add up to 0"),
        ({"steps": "1..5"}, "no step lies in 1..5"),
        ({"with_": ["OTHER", "OTHER"], "steps": "1..5"}, "takes the steps of one run"),
    ],
)
def test_what_cannot_be_averaged_is_said_before_anything_is_written(
    members: list[Path], tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    other = str(members[1])
    if "with_" in fields:
        given = fields["with_"]
        fields = {**fields, "with_": other if given == "OTHER" else [other] * len(given)}

    with pytest.raises(PlanError, match=message):
        _apply(members[0], tmp_path / "mean", at="params", **fields)

    assert not (tmp_path / "mean").exists()


def test_members_of_another_shape_are_refused_by_name(members: list[Path], tmp_path: Path) -> None:
    state = _state(1)
    state["params"]["w"] = state["params"]["w"][:, :7]
    other = _save(tmp_path / "narrow", state)

    with pytest.raises(PlanError, match="params/w") as caught:
        _apply(members[0], tmp_path / "mean", at="params", with_=str(other))

    assert "float32[40,7]" in caught.value.problems[0].why
