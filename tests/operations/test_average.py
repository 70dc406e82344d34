"""Averaging over checkpoints, held against float64 NumPy, with Orbax's own checkpoints as members."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.operations.step_ranges import named_steps
from surgery_cli.planning import operation_from_options, plan_of


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


def test_complex_leaves_and_python_floats_are_averaged_and_what_is_not_is_named(
    tmp_path: Path,
) -> None:
    def state(seed: int) -> dict[str, Any]:
        random = np.random.default_rng(seed)
        parts = random.standard_normal((2, 3, 4))
        return {
            "wide": (parts[0] + 1j * parts[1]).astype(np.complex128),
            "params": {"w": (parts[0] - 1j * parts[1]).astype(np.complex64)},
            "temperature": float(parts[0, 0, 0]),
            "codes": random.integers(-9, 9, (3, 4), np.int8),
            "step": np.int32(seed),
            "same": np.int32(5),
            "flag": np.array(seed > 0),
        }

    states = [state(seed) for seed in range(3)]
    paths = [_save(tmp_path / str(seed), one) for seed, one in enumerate(states)]
    report = _apply(paths[0], tmp_path / "mean", with_=list(map(str, paths[1:])))

    found = _restored(tmp_path / "mean")
    for read in (
        lambda one: one["params"]["w"],
        lambda one: one["wide"],
        lambda one: np.float64(one["temperature"]),
    ):
        mean = np.mean([np.asarray(read(one), np.complex128) for one in states], axis=0)
        dtype = read(states[0]).dtype
        exact = mean if np.issubdtype(dtype, np.complexfloating) else mean.real
        np.testing.assert_array_equal(read(found), exact.astype(dtype))
    np.testing.assert_array_equal(found["codes"], states[0]["codes"])
    (note,) = [str(note) for note in report.notes if "not averaged" in str(note)]
    assert "'codes' (int8[3,4])" in note
    assert "'step' (0, 1, 2)" in note
    assert "'same'" not in note
    assert "'flag' (0, 1, 1)" in note


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
    _apply(run, tmp_path / "mean", steps="20..40")

    with ocp.CheckpointManager(tmp_path / "mean") as manager:
        assert manager.all_steps() == [40]
        found = manager.restore(40, args=ocp.args.StandardRestore())
    expected = _mean([40, 20, 30], "w").astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found["params"]["w"]), expected)


@pytest.mark.parametrize(
    ("steps", "missing", "works"),
    [
        ("15..40", "no step 15, and 15..40 names it", "20,30,40"),
        ("10..45", "no step 45, and 10..45 names it", "10,20,30,40"),
        ("0..20", "no step 0, and 0..20 names it", "10,20"),
        ("10,25,30", "no step 25, and 10,25,30 names it", "10,30"),
        ("10..80", "no steps 50, 60, 70, 80, and 10..80 names them", "10,20,30,40"),
    ],
)
def test_a_range_names_steps_that_must_be_there(
    run: Path, tmp_path: Path, steps: str, missing: str, works: str
) -> None:
    with pytest.raises(PlanError) as caught:
        _plan(run, at="params", steps=steps)
    (problem,) = caught.value.problems
    assert f"the run has {missing}" in problem.what
    assert f"`steps: {works}`" in problem.fix
    note = _plan(run, at="params", steps=works).notes[-1]
    assert [f"step {number}" in note for number in works.split(",")] == [True] * (
        works.count(",") + 1
    )


@pytest.mark.parametrize(
    ("there", "steps", "missing"),
    [
        ([1, 2, 4], "1..4", "3"),
        ([1, 3, 4, 5], "1..3", "2"),
        ([100, 200, 400, 500], "100..500", "300"),
        ([1000, 2000, 2317, 3000, 4000], "1000..3000", None),
        ([1000, 2000, 2317, 3000, 4000], "2317..4000", None),
        ([2, 4, 6, 8], "2..8", None),
        ([7], "7..7", None),
    ],
)
def test_a_step_that_the_run_should_have_saved_is_missed(
    there: list[int], steps: str, missing: str | None
) -> None:
    if missing is None:
        first, last = map(int, steps.split(".."))
        assert named_steps(steps, there) == [n for n in there if first <= n <= last]
        return
    with pytest.raises(PlanError, match=f"the run has no step {missing}, and {steps}"):
        named_steps(steps, there)


def test_the_last_steps_are_those_of_the_highest_numbers_and_never_fewer_than_asked() -> None:
    assert named_steps("last:2", [10, 9, 100]) == [10, 100]
    assert named_steps("last:3", [10, 9, 100]) == [9, 10, 100]
    with pytest.raises(PlanError, match="the run has no 4 steps"):
        named_steps("last:4", [10, 9, 100])


def test_a_range_of_another_run_leaves_none_out(
    run: Path, members: list[Path], tmp_path: Path
) -> None:
    _apply(members[0], tmp_path / "mean", with_=str(run), steps="10..20")

    expected = _mean([0, 10, 20], "w").astype(np.float32)
    np.testing.assert_array_equal(_restored(tmp_path / "mean")["params"]["w"], expected)


def test_moments_that_are_averaged_too_are_not_reset(tmp_path: Path) -> None:

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


@pytest.mark.parametrize("unit", [1e308, 1e-308, 5e-324, -1e308, 1.0])
def test_only_the_ratio_of_weights_counts(members: list[Path], tmp_path: Path, unit: float) -> None:
    weights = [unit, unit]
    _apply(members[1], tmp_path / "mean", with_=str(members[2]), at="params/w", weights=weights)

    leaves = [_state(seed)["params"]["w"].astype(np.float64) for seed in (1, 2)]
    expected = np.mean(leaves, axis=0).astype(np.float32)
    np.testing.assert_array_equal(_restored(tmp_path / "mean")["params"]["w"], expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "only one member"),
        ({"with_": "OTHER", "weights": [1.0, 2.0, 3.0]}, "3 weights for 2 members"),
        ({"with_": "OTHER", "weights": [1.0, -1.0]}, "add up to 0"),
        ({"steps": "1..5"}, "is not a run of steps"),
        ({"with_": ["OTHER", "OTHER"], "steps": "1..5"}, "takes the steps of one run"),
        ({"with_": ["OTHER", "OTHER"]}, "stands twice among the members"),
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


# --- who the members are -------------------------------------------------------------------------------------------


def _plan(source: object, *, step: int | None = None, **fields: Any) -> Any:
    plan = plan_of([operation_from_options("average", fields)])
    return surgery.plan(str(source), plan, options=surgery.Options(step=step))


def test_the_preview_names_every_member_with_the_weight_that_it_gets(run: Path) -> None:
    preview = _plan(run, at="params", steps="10..40", weights=[1.0, 2.0, 3.0, 0.5])

    assert preview.notes[-1] == (
        "members of the average, with their weights:"
        " step 40 (the source) × 1, step 10 × 2, step 20 × 3, step 30 × 0.5"
    )


def test_a_wrong_count_of_weights_names_the_members(run: Path) -> None:
    with pytest.raises(PlanError, match="3 weights for 4 members") as caught:
        _plan(run, at="params", steps="10..40", weights=[1.0, 2.0, 3.0])

    (problem,) = caught.value.problems
    assert problem.why == "the members are step 40 (the source), step 10, step 20, step 30"


def test_the_weights_go_to_the_members_in_the_order_that_the_preview_says(
    run: Path, tmp_path: Path
) -> None:
    _apply(run, tmp_path / "mean", at="params/w", steps="10..40", weights=[1.0, 2.0, 3.0, 0.5])

    with ocp.CheckpointManager(tmp_path / "mean") as manager:
        found = manager.restore(40, args=ocp.args.StandardRestore())
    expected = _mean([40, 10, 20, 30], "w", [1.0, 2.0, 3.0, 0.5]).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found["params"]["w"]), expected)
    record = json.loads((tmp_path / "mean/40/surgery.json").read_text())
    assert (
        "step 40 (the source) × 1, step 10 × 2, step 20 × 3, step 30 × 0.5" in record["notes"][-1]
    )


def test_twenty_members_are_one_short_note(members: list[Path]) -> None:
    preview = _plan(members[0], at="params", with_=[str(path) for path in members[1:]])

    others = ", ".join(f"'m{seed}'" for seed in range(1, 20))
    assert (
        preview.notes[-1]
        == f"20 members of the average, of equal weight: 'm0' (the source), {others}"
    )


def test_members_of_one_name_are_told_apart_by_the_directories_above(tmp_path: Path) -> None:
    first, second = (_save(tmp_path / name / "ckpt", _state(1)) for name in ("a", "b"))

    note = _plan(first, at="params", with_=str(second)).notes[-1]

    assert note.endswith("of equal weight: 'a/ckpt' (the source), 'b/ckpt'")


def test_copies_of_one_checkpoint_are_pointed_out(members: list[Path], tmp_path: Path) -> None:
    copy = shutil.copytree(members[1], tmp_path / "copy")

    notes = _plan(members[0], at="params", with_=[str(members[1]), str(copy)]).notes

    assert (
        notes[-1]
        == "some members are copies of one another, and each of them counts: 'm1' and 'copy'"
    )


@pytest.mark.parametrize("op", ["average", "karcher", "task-arithmetic"])
def test_leaves_that_only_another_member_has_are_named(
    members: list[Path], tmp_path: Path, op: str
) -> None:
    state = _state(3)
    state["params"]["extra"] = np.ones(3, np.float32)
    more = _save(tmp_path / "more", state)

    def notes(**fields: Any) -> list[str]:
        edit = operation_from_options(op, {"at": "params", "with_": str(more), **fields})
        return [*surgery.plan(str(members[0]), plan_of([edit])).notes]

    said = "members have leaves that the source lacks, and that are left out:"
    assert f"{said} '{more}' 'params/extra'" in notes()
    assert not [note for note in notes(at="params/w") if said in note]


def test_a_source_outside_of_the_range_is_said_to_be_a_member(run: Path) -> None:
    note = _plan(run, step=40, at="params", steps="10..30").notes[-1]

    assert "step 40 (the source, though outside of 10..30), step 10, step 20, step 30" in note


@pytest.mark.parametrize(
    "others",
    [
        ["ROOT@20", "ROOT@20"],
        ["ROOT@20", "ROOT/20"],
        ["ROOT/20/default", "ROOT@20"],
        ["LINK@20", "ROOT@20"],
        ["ROOT@10", "ROOT"],
        ["ROOT/40/default"],
    ],
)
def test_a_checkpoint_that_would_count_twice_is_refused_however_it_is_named(
    run: Path, tmp_path: Path, others: list[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(run)
    named = [text.replace("ROOT", str(run)).replace("LINK", str(link)) for text in others]

    with pytest.raises(PlanError, match="twice") as caught:
        _plan(run, at="params", with_=named)

    (problem,) = caught.value.problems
    assert "40" in problem.what if "20" not in "".join(others) else "20" in problem.what
    assert "a weight of 2" in problem.fix
    assert problem.path is None


def test_a_range_of_the_sources_own_run_by_name_counts_its_step_twice_and_is_refused(
    run: Path,
) -> None:
    with pytest.raises(PlanError, match="@40' would count twice: it is the source"):
        _plan(run, at="params", with_=str(run), steps="10..40")


def test_a_leaf_that_the_plan_has_changed_may_be_averaged_with_the_stored_one(
    members: list[Path], tmp_path: Path
) -> None:
    halved = operation_from_options("rescale", {"at": "params/w", "by": 0.5})
    mean = operation_from_options("average", {"at": "params/w", "with": str(members[0])})

    surgery.apply(str(members[0]), str(tmp_path / "mean"), plan_of([halved, mean]))

    expected = _state(0)["params"]["w"] * np.float32(0.75)
    np.testing.assert_allclose(_restored(tmp_path / "mean")["params"]["w"], expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("steps", "message", "fix"),
    [
        ("40..10", "the range 40..10 is turned around", "`steps: 10..40`"),
        ("10-30", "`steps` must be text like `100..500`", "`A..B`: the steps from A to B"),
        ("40..40", "no step but 40, the source itself, lies in 40..40", "some of the others"),
        ("41..99", "no step lies in 41..99", "some of the others"),
    ],
)
def test_a_range_without_members_says_what_is_wrong_with_it(
    run: Path, steps: str, message: str, fix: str
) -> None:
    with pytest.raises(PlanError) as caught:
        _plan(run, at="params", steps=steps)

    (problem,) = caught.value.problems
    assert message in problem.what
    assert fix in problem.fix


def test_members_that_are_not_there_are_said_once_each_and_of_no_leaf(
    members: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(PlanError) as caught:
        _plan(members[0], with_=[str(tmp_path / "x"), str(members[1]), str(tmp_path / "y")])

    assert [p.what for p in caught.value.problems] == [
        f"'{tmp_path}/x' does not exist",
        f"'{tmp_path}/y' does not exist",
    ]
    assert {p.path for p in caught.value.problems} == {None}


def test_a_damaged_member_is_one_error(members: list[Path], tmp_path: Path) -> None:
    damaged = _save(tmp_path / "damaged", _state(1))
    for file in damaged.glob("ocdbt.process_0/d/*"):
        file.write_bytes(file.read_bytes()[:20])

    with pytest.raises(CheckpointError) as caught:
        _plan(members[0], with_=[str(damaged)])

    (problem,) = caught.value.problems
    assert "is truncated" in problem.what
    assert problem.path is None


# --- optimizer state ---------------------------------------------------------------------------------------------


def _trained(seed: int, tx: Any) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    params = {f"layer_{n}": {"w": random.standard_normal((4, 3), np.float32)} for n in range(5)}
    gradients = {name: {"w": leaf["w"] * np.float32(0.1)} for name, leaf in params.items()}
    _, state = tx.update(gradients, tx.init(params), params)
    return {"params": params, "opt_state": state}


@pytest.fixture(scope="module")
def adams(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two checkpoints with Adam's state, and one of params alone."""

    folder = tmp_path_factory.mktemp("adams")
    states = [_trained(seed, optax.adam(1e-3)) for seed in (1, 2)]
    states.append({"params": _trained(3, optax.adam(1e-3))["params"]})
    return [_save(folder / f"s{number}", state) for number, state in enumerate(states)]


def test_a_negative_weight_over_second_moments_is_refused_before_any_work(
    adams: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match="nu/layer_0/w' negative") as caught:
        _apply(adams[0], tmp_path / "new", with_=str(adams[1]), weights=[2.0, -1.0])

    (problem,) = caught.value.problems
    assert "takes roots of them; and so it is with 4 more" in problem.why
    assert "`at: params`" in problem.fix
    assert not (tmp_path / "new").exists()


def test_params_alone_take_negative_weights_and_second_moments_stay(
    adams: list[Path], tmp_path: Path
) -> None:
    _apply(adams[0], tmp_path / "new", at="params", with_=str(adams[1]), weights=[2.0, -1.0])

    before, other, found = (_restored(path) for path in (adams[0], adams[1], tmp_path / "new"))
    leaves = [tree["params"]["layer_0"]["w"].astype(np.float64) for tree in (before, other)]
    expected = (2 * leaves[0] - leaves[1]).astype(np.float32)
    np.testing.assert_array_equal(found["params"]["layer_0"]["w"], expected)
    moments, kept = found["opt_state"][0], before["opt_state"][0]
    np.testing.assert_array_equal(moments["nu"]["layer_0"]["w"], kept["nu"]["layer_0"]["w"])
    assert not np.any(moments["mu"]["layer_0"]["w"])


def test_first_moments_and_weights_below_0_that_all_are_take_part(adams: list[Path]) -> None:
    assert (
        _plan(adams[0], at="**/mu", with_=str(adams[1]), weights=[2.0, -1.0]).edits[0].leaves == 5
    )
    assert _plan(adams[0], with_=str(adams[1]), weights=[-2.0, -1.0]).edits[0].leaves == 15


_WHOLE, _NUMBER = np.ones((3, 2), np.float32), np.ones((), np.float32)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"opt_state": [{"odd": {"w": _WHOLE}}]}, "nothing tells what odd is"),
        ({"opt_state": {"hyperparams": {"learning_rate": _NUMBER}}}, "perhaps a learning rate"),
        ({"batch_stats": {"norm": {"mean": _WHOLE, "var": _WHOLE}}}, "it holds variances"),
        ({"bn": {"mean": _WHOLE, "var": _WHOLE}}, "it holds variances"),
        ({"bn": {"mean": {"value": _WHOLE}, "var": {"value": _WHOLE}}}, "it holds variances"),
    ],
)
def test_negative_weights_are_refused_where_nobody_knows_what_may_be_negative(
    tmp_path: Path, extra: dict[str, Any], reason: str
) -> None:
    state = {"params": {"w": _WHOLE}, **extra}
    first, second = (_save(tmp_path / name, state) for name in "ab")

    with pytest.raises(PlanError, match="weights below 0 could make") as caught:
        _plan(first, with_=str(second), weights=[2.0, -1.0])

    assert reason in caught.value.problems[0].why


def test_a_member_without_optimizer_state_is_one_error_that_names_the_params(
    adams: list[Path],
) -> None:
    with pytest.raises(PlanError) as caught:
        _plan(adams[0], with_=str(adams[2]))

    (problem,) = caught.value.problems
    assert problem.what == f"'{adams[2]}' has 5 of the 15 leaves"
    assert "'opt_state/0/mu/layer_0/w'" in problem.why
    assert "average the params alone, `at: params`" in problem.fix


def _injected(path: Path, steps: int, learning_rate: float) -> Path:
    optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=learning_rate)
    params = {"w": jnp.ones((3, 2))}
    state = optimizer.init(params)
    for _ in range(steps):
        _, state = optimizer.update(params, state, params)
    return _save(path, {"params": params, "opt_state": state, "step": np.int32(steps)})


def _consequences(source: Path, **fields: Any) -> str:
    plan = plan_of([operation_from_options("average", fields)])
    return "\n".join(surgery.plan(str(source), plan).consequences)


def test_settings_that_are_averaged_and_counters_that_are_not_are_said(tmp_path: Path) -> None:
    source, twin, other = (
        _injected(tmp_path / name, steps, rate)
        for name, steps, rate in (("a", 3, 0.1), ("b", 3, 0.1), ("c", 5, 0.05))
    )

    said = _consequences(source, with_=str(other))
    assert "averaged, too: 'opt_state/hyperparams/learning_rate' (0.1, 0.05)" in said
    assert "stay as the source has them: 'opt_state/count' (3, 5), 'step' (3, 5)" in said
    assert "b1" not in said  # it is equal in both

    assert "averaged, too" not in _consequences(source, with_=str(twin))
    assert "stay as" not in _consequences(source, with_=str(twin))
    assert "averaged, too" not in _consequences(source, at="params", with_=str(other))
    exactly = _consequences(source, at="opt_state/hyperparams/learning_rate", with_=str(other))
    assert "averaged, too" not in exactly
