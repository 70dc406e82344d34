"""Where only values rule kinds out, little is read, only if it matters; it is counted, and proves nothing."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

from surgery_cli import reports, surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.surgery import state_kinds

SHAPES = {"a": (64, 16), "b": (8,), "c": (32, 8)}
KERNEL_BYTES = 64 * 16 * 4


def gradients(scale: float, steps: int, idle: tuple[str, ...] = (), seed: int = 0) -> list[Any]:
    draws = np.random.default_rng(seed)
    return [
        {
            name: draws.normal(0, 0.0 if name in idle else scale, shape).astype(np.float32)
            for name, shape in SHAPES.items()
        }
        for _ in range(steps)
    ]


def trained(optimizer: Any, grads: list[Any], factor: float = 1.0) -> Any:
    """The state after these gradients, of params that are ``factor`` times as large."""
    params = jax.tree.map(lambda g: np.full(g.shape, factor, np.float32), grads[0])
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for grad in grads:
        _, state = update(jax.tree.map(lambda g: g / np.float32(factor), grad), state, params)
    return {"params": params, "opt_state": state}


def saved(path: Path, tree: Any) -> str:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return str(path)


def previewed(source: str, **fields: str) -> reports.Preview:
    fields = {"at": "params/a", "by": "0.1", **fields}
    return surgery.plan(source, plan_of([operation_from_options("rescale", fields)]))


@pytest.fixture(scope="module")
def adam(tmp_path_factory: pytest.TempPathFactory) -> str:
    tree = trained(optax.adam(1e-3), gradients(0.01, 5, idle=("b",)))
    return saved(tmp_path_factory.mktemp("looking") / "adam", tree)


def test_slots_that_are_kept_are_not_read(adam: str) -> None:
    found = previewed(adam, optimizer="keep")
    assert found.bytes_read == KERNEL_BYTES
    assert not found.notes
    assert not found.assumptions


def test_slots_that_stay_if_nobody_says_anything_are_not_read(adam: str) -> None:
    """Noise shifts params: their slots are kept, by the effect."""
    noise = operation_from_options("noise", {"at": "params/a", "std": "0.1"})
    found = surgery.plan(adam, plan_of([noise]))
    assert found.edits[0].twins == {"keep": 2}
    assert found.bytes_read == KERNEL_BYTES


def test_all_leaves_of_a_state_are_read_together_and_counted(adam: str) -> None:
    found = previewed(adam)
    every = sum(2 * 4 * int(np.prod(shape)) for shape in SHAPES.values())
    assert found.bytes_read == every + 3 * KERNEL_BYTES
    assert found.edits[0].twins == {"transform": 2}


def test_the_smallest_leaves_are_read_first_and_no_more_than_the_cap(
    adam: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_kinds, "MOST_BYTES", 2 * 4 * 8 + 1)
    found = previewed(adam)
    assert found.bytes_read == 2 * 4 * (8 + 32 * 8) + 3 * KERNEL_BYTES
    assert found.edits[0].twins == {"transform": 2}


def test_what_values_do_not_prove_is_named_in_the_preview_its_words_and_the_record(
    adam: str, tmp_path: Path
) -> None:
    found = previewed(adam)
    (taken,) = found.assumptions
    assert (taken.node, taken.taken_for) == ("opt_state/0", "Adam's family")
    assert {"adopt", "LaProp", "adabelief of gradients near its `eps`"} <= set(taken.unless)
    assert "not proved" in taken.sentence
    assert found.edits[0].taken_for == ["Adam's family"]

    plan = plan_of([operation_from_options("rescale", {"at": "params/a", "by": "0.1"})])
    surgery.apply(adam, str(tmp_path / "new"), plan)
    record = (tmp_path / "new" / "surgery.json").read_text()
    assert '"taken_for": "Adam\'s family"' in record


def test_what_a_word_settles_is_no_assumption(adam: str) -> None:
    edit = operation_from_options("rescale", {"at": "params/a", "by": "0.1"})
    found = surgery.plan(adam, plan_of([edit], optimizer_kind="adamw"))
    assert found.edits[0].twins == {"transform": 2}
    assert not found.assumptions
    assert found.bytes_read == 3 * KERNEL_BYTES


ADAMS: dict[str, Any] = {
    "b2=.9999": optax.adam(1e-3, b2=0.9999),
    "b1=.5": optax.adam(1e-3, b1=0.5),
    "b1=0": optax.adam(1e-3, b1=0.0),
    "adamw(.95,.9999)": optax.adamw(1e-3, b1=0.95, b2=0.9999),
    "adabelief": optax.adabelief(1e-3),
    "acprop": contrib.acprop(1e-3),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("steps", [1, 7, 50])
@pytest.mark.parametrize("name", ADAMS)
def test_adam_s_family_follows_or_is_kept_whole_whatever_its_settings(
    name: str, steps: int, tmp_path: Path
) -> None:
    grads = gradients(0.01, steps)
    own = trained(ADAMS[name], grads)
    source = saved(tmp_path / "source", own)
    edit = operation_from_options("rescale", {"at": "params/a", "by": "0.1"})
    report = surgery.apply(source, str(tmp_path / "new"), plan_of([edit]))

    smaller = [grad | {"a": grad["a"] / np.float32(0.1)} for grad in grads]
    expected = optax.tree.get(trained(ADAMS[name], smaller), "nu")["a"]
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")["opt_state"]
    mu, nu = _moments(found)
    before, old = (optax.tree.get(own, moment)["a"] for moment in ("mu", "nu"))
    if report.edits[0].twins == {"keep": 2}:
        np.testing.assert_array_equal(mu, before)
        np.testing.assert_array_equal(nu, old)
    else:
        np.testing.assert_allclose(mu, before * 10, rtol=1e-5)
        np.testing.assert_allclose(nu, expected, rtol=2e-3)
        assert report.assumptions


def _moments(state: Any) -> tuple[Any, Any]:
    first = state[0]
    return first["mu"]["a"], first["nu"]["a"]


def test_adam_whose_layer_had_no_gradient_for_long_is_not_taken_for_adamax(tmp_path: Path) -> None:
    grads = gradients(0.01, 3) + gradients(0.01, 100, idle=("a",))
    found = previewed(saved(tmp_path / "source", trained(optax.adam(1e-3), grads)))
    assert found.edits[0].twins == {"transform": 2}
    assert found.assumptions


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0])
@pytest.mark.parametrize("make", [lambda: contrib.adopt(1e-3), lambda: optax.adamax(1e-3)])
def test_adopt_and_adamax_are_not_taken_for_adam(make: Any, scale: float, tmp_path: Path) -> None:
    source = saved(tmp_path / "source", trained(make(), gradients(scale, 20)))
    found = previewed(source)
    assert found.edits[0].twins == {"keep": 2}
    assert any("leave it open" in note for note in found.notes)
    with pytest.raises(PlanError, match="is not known"):
        previewed(source, optimizer="transform")


def test_a_whole_run_of_settings_away_from_the_defaults_never_follows_unsaid() -> None:
    """The bound that rules out adamax holds for adamax whatever the gradients, and one leaf is enough for a node."""
    from surgery_cli.optimizer.detect.evidence import ADAMAX_BOUND
    from surgery_cli.proof.statistics import moment_statistics

    rng = np.random.default_rng(5)
    for b1, b2 in [(0.9, 0.999), (0.5, 0.9), (0.0, 0.99), (0.8, 0.95), (0.95, 0.9999)]:
        for scale in (1e-6, 1e-2, 10.0):
            state = trained(
                optax.adamax(1e-3, b1, b2), gradients(scale, 12, seed=int(rng.integers(99)))
            )
            mu, nu = (optax.tree.get(state["opt_state"], name) for name in ("mu", "nu"))
            for leaf in SHAPES:
                seen = moment_statistics(np.asarray(mu[leaf]), np.asarray(nu[leaf]), ADAMAX_BOUND)
                assert not seen.is_beyond


def test_of_hundreds_of_leaves_no_more_are_read_than_tell(tmp_path: Path) -> None:
    params = {f"layer_{n:03}": np.ones(4, np.float32) for n in range(120)}
    adam = optax.scale_by_adam()
    grads = jax.tree.map(lambda x: x * np.float32(0.01), params)
    _, state = jax.jit(adam.update)(grads, adam.init(params))
    source = saved(tmp_path / "source", {"params": params, "opt_state": (state, None)})
    found = previewed(source, at="params/layer_000")
    assert found.edits[0].twins == {"transform": 2}
    assert found.bytes_read == 48 * 2 * 16 + 3 * 16
