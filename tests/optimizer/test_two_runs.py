"""One plan of two edits does what two plans of one do, optimizer state included: the record carries what was known."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

from surgery_cli import surgery
from surgery_cli.errors import PlanError, SurgeryError
from surgery_cli.operations.average import Average
from surgery_cli.operations.base import Operation
from surgery_cli.operations.insert_item import InsertItem
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.planning import operation_from_options, plan_of

PARAMS = {"a": {"w": (4, 3)}, "b": {"w": (3,)}}


def saved(path: Path, optimizer: Any, scale: float, idle: str = "") -> str:
    draws = np.random.default_rng(0)

    def drawn(size: float) -> Any:
        return {
            layer: {
                n: draws.normal(0, size, shape).astype(np.float32) for n, shape in leaves.items()
            }
            for layer, leaves in PARAMS.items()
        }

    params = drawn(1.0)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(3):
        grads = drawn(scale)
        if idle:
            grads[idle] = jax.tree.map(np.zeros_like, grads[idle])
        _, state = update(grads, state, params)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params, "opt_state": state})
    return str(path)


def restored(path: Path) -> dict[str, Any]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(path)
    return {
        jax.tree_util.keystr(k): np.asarray(v) for k, v in jax.tree_util.tree_leaves_with_path(tree)
    }


EDITS: dict[str, list[Operation]] = {
    "small": [Rescale(at="params/b/w", by=0.01)],
    "large": [Rescale(at="params/a/w", by=8.0)],
    "kept": [Rescale(at="params/a/w", by=4.0, optimizer="keep")],
    "drawn": [Reinit(at="params/a/w", init="normal", seed=1)],
    "drawn everywhere": [Reinit(at="params", init="normal", seed=1)],
    "norm": [Normalize(at="params/a/w")],
    "set": [Replace(at="opt_state/0/mu/a/w", with_=0.5)],
    "reset": [ResetOptimizer(at="params/b")],
    "renamed": [Rename(at="params/a/w", to="params/c/w")],
}
STATES: dict[str, tuple[Any, float, str]] = {
    "adam": (optax.adam(1e-3), 1e-2, ""),
    "adam, one layer told": (optax.adam(1e-3), 1e-2, "b"),
    "adam, large": (optax.adam(1e-3), 5.0, ""),
    "adopt": (contrib.adopt(1e-3), 1e-2, ""),
    "sgd": (optax.sgd(0.1, momentum=0.9), 1e-2, ""),
}
EVERY_PAIR = [*product(STATES, EDITS, EDITS)]
PAIRS = [
    (state, first, second)
    for number, (state, first, second) in enumerate(EVERY_PAIR)
    if number % 13 == 0 or (state == "adam, one layer told" and first.startswith("drawn"))
]
"""Each state, each first edit and each second one; all of them with ``--every-combination``."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function is test_two_edits_in_one_plan_equal_two_plans_of_one:
        every = metafunc.config.getoption("--every-combination")
        metafunc.parametrize(("state", "first", "second"), EVERY_PAIR if every else PAIRS)


def outcome(source: str, target: Path, *edits: Operation) -> dict[str, Any] | type[SurgeryError]:
    try:
        surgery.apply(source, str(target), plan_of(edits))
    except SurgeryError as error:
        return type(error)
    return restored(target)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("two_runs")
    return {name: saved(root / str(n), *state) for n, (name, state) in enumerate(STATES.items())}


Half = tuple[str, type[SurgeryError] | None]


@pytest.fixture(scope="module")
def halves(
    sources: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Half]:
    """What a first edit makes of a state, made once: where it stands, or the error that refuses it."""
    root = tmp_path_factory.mktemp("halves")

    @cache
    def half(state: str, first: str) -> Half:
        path = str(root / f"{state} {first}")
        try:
            surgery.apply(sources[state], path, plan_of(EDITS[first]))
        except SurgeryError as error:
            return path, type(error)
        return path, None

    return half


def test_the_pairs_have_every_state_and_every_edit_in_both_places() -> None:
    for place in range(3):
        assert {pair[place] for pair in PAIRS} == {pair[place] for pair in EVERY_PAIR}


@pytest.mark.sampled(16)
def test_two_edits_in_one_plan_equal_two_plans_of_one(
    sources: dict[str, str],
    halves: Callable[[str, str], Half],
    state: str,
    first: str,
    second: str,
    tmp_path: Path,
) -> None:
    together = outcome(sources[state], tmp_path / "together", *EDITS[first], *EDITS[second])
    half, refused = halves(state, first)
    if refused is not None:
        assert together == refused
        return
    apart = outcome(half, tmp_path / "apart", *EDITS[second])
    if isinstance(together, type) or isinstance(apart, type):
        assert together == apart
        return
    assert together.keys() == apart.keys()
    for path, leaf in apart.items():
        np.testing.assert_array_equal(together[path], leaf, err_msg=path)


@pytest.mark.parametrize("how", ["optimizer_kind", "slots"])
def test_what_an_earlier_run_was_told_settles_a_later_one_wherever_the_slots_stand_now(
    how: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", optax.chain(optax.clip(1e3), optax.scale_by_adam()), 1.0)
    hints = {"opt_state/1/mu": {"power": -1}, "opt_state/1/nu": {"power": -2, "even": True}}
    word: dict[str, Any] = {how: "adam" if how == "optimizer_kind" else hints}
    first = [Rescale(at="params/b/w", by=0.5), Rename(at="opt_state", to="moments/opt_state")]
    told = surgery.apply(source, str(tmp_path / "told"), plan_of(first, **word))
    entries = json.loads((tmp_path / "told" / "surgery.json").read_text())["slots"]
    assert {(e["node"], e["by"], e["power"]) for e in entries} == {
        ("moments/opt_state/1/mu", "word", -1),
        ("moments/opt_state/1/nu", "word", -2),
    }
    between = [Rename(at="params/a/w", to="params/c/w")]
    surgery.apply(str(tmp_path / "told"), str(tmp_path / "between"), plan_of(between))

    edit = Rescale(at="params/c/w", by=0.5, optimizer="transform")
    report = surgery.apply(str(tmp_path / "between"), str(tmp_path / "later"), plan_of([edit]))
    assert report.edits[0].twins == {"transform": 2}
    # a factory's name leaves open what the place before it, where nothing is stored, did to the gradients
    assert [one.taken_for for one in report.assumptions] == [
        one.taken_for for one in told.assumptions
    ]
    assert bool(told.assumptions) == (how == "optimizer_kind")
    with pytest.raises(SurgeryError, match="is not known"):
        surgery.apply(
            source,
            str(tmp_path / "no"),
            plan_of([Rescale(at="params/a/w", by=0.5, optimizer="transform")]),
        )


def test_a_word_stands_above_the_record(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", optax.adamax(1e-3), 1.0)
    surgery.apply(
        source,
        str(tmp_path / "told"),
        plan_of([Rescale(at="params/b/w", by=0.5)], optimizer_kind="adamax"),
    )
    old, edit = restored(tmp_path / "told"), Rescale(at="params/a/w", by=0.5)
    surgery.apply(str(tmp_path / "told"), str(tmp_path / "recalled"), plan_of([edit]))
    surgery.apply(
        str(tmp_path / "told"), str(tmp_path / "said"), plan_of([edit], optimizer_kind="adam")
    )
    nu = next(path for path in old if "nu" in path and "'a'" in path)
    np.testing.assert_array_equal(restored(tmp_path / "recalled")[nu], old[nu] * 2)
    np.testing.assert_array_equal(restored(tmp_path / "said")[nu], old[nu] * 4)


FROM_ELSEWHERE: dict[str, Any] = {
    "replace all": Replace(at="opt_state", with_="donor"),
    "insert": InsertItem(at="opt_state", with_="donor", from_="opt_state"),
    "replace fields": Replace(
        at=("opt_state/0/mu", "opt_state/0/nu", "opt_state/0/count"), with_="donor"
    ),
    "replace one field": Replace(at="opt_state/0/mu", with_="donor"),
    "replace one leaf": Replace(at="opt_state/0/mu/b/w", with_="donor"),
    "average": Average(at="opt_state/0/{mu,nu}", with_="donor"),
    "set": Replace(at="opt_state/0/mu/a/w", with_=0.5),
    "draw": Reinit(at="opt_state/0/nu/b/w", init="uniform", seed=1),
}


@pytest.fixture(scope="module", params=["adam", None])
def told(
    request: pytest.FixtureRequest,
    sources: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """A run of Adam after an edit that was told so, and after one that was not."""
    path = str(tmp_path_factory.mktemp("told") / "run")
    first = Rescale(at="params/a/w", by=0.5)
    surgery.apply(sources["adam"], path, plan_of([first], optimizer_kind=request.param))
    return path


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", FROM_ELSEWHERE)
def test_what_is_on_record_of_a_state_is_not_said_of_values_that_were_put_into_it(
    how: str, told: str, sources: dict[str, str], tmp_path: Path
) -> None:
    later = Rescale(at="params/b/w", by=0.5)
    edit, donor = FROM_ELSEWHERE[how], {"donor": sources["adopt"]}
    surgery.apply(told, str(tmp_path / "half"), plan_of([edit], sources=donor))
    apart = surgery.plan(str(tmp_path / "half"), plan_of([later]))
    together = surgery.plan(told, plan_of([edit, later], sources=donor))
    assert apart.edits[0].twins == together.edits[1].twins == {"keep": 2}
    # the run that is told of it may follow it, and does not pass it on
    now = surgery.apply(
        told, str(tmp_path / "again"), plan_of([edit, later], sources=donor, optimizer_kind="adam")
    )
    assert now.edits[1].twins == {"transform": 2}
    after = surgery.plan(str(tmp_path / "again"), plan_of([later]))
    assert after.assumptions or after.edits[0].twins == {"keep": 2}


def test_the_record_of_a_donor_tells_of_the_state_that_comes_from_it(tmp_path: Path) -> None:
    later, word = Rescale(at="params/b/w", by=0.5), {"optimizer_kind": "adopt"}
    for name, optimizer in (("adam", optax.adam(1e-3)), ("adopt", contrib.adopt(1e-3))):
        made = saved(tmp_path / name, optimizer, 1e-2)
        surgery.apply(made, str(tmp_path / f"{name}_told"), plan_of([later], optimizer_kind=name))
    take = Replace(at=("params", "opt_state"), with_=str(tmp_path / "adopt_told"), twins="named")
    surgery.apply(str(tmp_path / "adam_told"), str(tmp_path / "half"), plan_of([take]))
    surgery.apply(str(tmp_path / "half"), str(tmp_path / "found"), plan_of([later]))
    surgery.apply(str(tmp_path / "adopt_told"), str(tmp_path / "wanted"), plan_of([later], **word))
    wanted = restored(tmp_path / "wanted")
    for path, leaf in restored(tmp_path / "found").items():
        np.testing.assert_array_equal(leaf, wanted[path], err_msg=path)


def test_an_assumption_of_an_earlier_run_is_named_again(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", optax.adam(1e-3), 1e-2)
    surgery.apply(source, str(tmp_path / "first"), plan_of([Rescale(at="params/a/w", by=0.001)]))
    again = surgery.plan(str(tmp_path / "first"), plan_of([Rescale(at="params/b/w", by=0.5)]))
    (taken,) = again.assumptions
    assert taken.taken_for == "Adam's family"
    assert again.edits[0].twins == {"transform": 2}


@pytest.mark.parametrize(
    ("optimizer", "field", "said", "second"),
    [
        (optax.adagrad(0.1, 0.5), "sum_of_squares", {"start": 0.5}, Rescale(at="params/a/w", by=0.5)),
        (optax.adagrad(0.1, 0.5), "sum_of_squares", {"fresh": 0.5}, Rescale(at="params/a/w", by=0.5)),
        (optax.adagrad(0.1, 0.5), "sum_of_squares", {"fresh": 0.5}, ResetOptimizer()),
        (optax.rmsprop(0.1, initial_scale=1.0), "nu", {"start": 0.9**3}, Rescale(at="params/a/w", by=0.5)),
    ],
)  # fmt: skip
def test_a_start_that_was_said_need_not_be_said_again(
    optimizer: Any, field: str, said: dict[str, float], second: Operation, tmp_path: Path
) -> None:
    source, node = saved(tmp_path / "source", optimizer, 1e-2), f"opt_state/0/{field}"
    first = Rescale(at="params/a/w", by=0.5, optimizer="transform")
    half, together, apart = (str(tmp_path / name) for name in ("half", "together", "apart"))
    word: dict[str, Any] = {"slots": {node: said}}
    if field == "nu":
        word = {"slots": {node: {**said, "power": -2, "even": True}}}
    surgery.apply(source, together, plan_of([first, second], **word))
    surgery.apply(source, half, plan_of([first], **word))
    surgery.apply(half, apart, plan_of([second]))
    expected, found = restored(Path(together)), restored(Path(apart))
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)
    slot = next(path for path in found if field in path and "'a'" in path)
    old = restored(Path(source))[slot].astype(float)
    start = next(iter(said.values()))
    exact = start if isinstance(second, ResetOptimizer) else (old - start) * 16 + start
    np.testing.assert_allclose(found[slot], np.broadcast_to(exact, old.shape), rtol=1e-5)


def test_the_slots_of_an_ensemble_are_not_taken_under_counts_that_nobody_compares(
    tmp_path: Path,
) -> None:
    def ensemble(steps: tuple[int, ...]) -> Any:
        members = []
        for count in steps:
            params = {"w": np.ones((4, 3), np.float32)}
            state = optax.scale_by_adam().init(params)
            for step in range(count):
                grads = {"w": np.random.default_rng(step).normal(0, 0.1, (4, 3)).astype(np.float32)}
                _, state = optax.scale_by_adam().update(grads, state)
            members.append({"params": params, "opt_state": state})
        return jax.tree.map(lambda *leaves: np.stack(leaves), *members)

    for name, steps in {"here": (40, 3, 5), "there": (40, 40, 40)}.items():
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, ensemble(steps))
    fields = {"at": "params/w", "with": str(tmp_path / "there")}
    plan = plan_of([operation_from_options("replace", fields)])
    found = surgery.plan(str(tmp_path / "here"), plan)
    assert found.edits[0].twins == {"warm": 2}
    assert any("several counts" in note for note in found.notes)
    with pytest.raises(PlanError, match="cannot go on"):
        surgery.plan(str(tmp_path / "here"), plan, options=surgery.Options(optimizer="transform"))
