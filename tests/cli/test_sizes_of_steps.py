"""How large the next steps are told to be, held against training: of every factory whose clock corrects a bias."""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from surgery_cli.optimizer.knowledge.adam_steps_of import AFTER_A_RESTART, UNDER_ANOTHER_COUNT
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.optimizer.knowledge.kinds import by_name
from tests.cli.test_donor_slots import saved

LR = 1e-3
FEW, MANY = 30, 300
WITHIN = 0.15

CORRECTED = [
    (factory, kind)
    for factory, kinds in FACTORIES.items()
    for kind in kinds
    if "bias_correction" in by_name()[kind].clocks.values()
    and by_name()[kind].family not in ("momentum", "muon", "dadapt", "prodigy")
    and (factory, kind) != ("muon", "adam")  # of vectors alone
    and kind != "centered_rmsprop"
    and not factory.startswith("schedule_free")  # its steps are those of an average of params
]


def test_nothing_is_told_of_what_is_not_trained_here():
    assert set(CORRECTED) >= UNDER_ANOTHER_COUNT | AFTER_A_RESTART


def made(factory):
    make = getattr(optax, factory, None) or getattr(contrib, factory)
    takes = inspect.signature(make).parameters
    settings = {"learning_rate": LR, "bias_correction": True, "alpha": 5.0}
    required = {"learning_rate", "bias_correction"} | {
        name for name, one in takes.items() if one.default is one.empty
    }
    made = make(**{name: settings[name] for name in takes if name in required})
    return made if "learning_rate" in takes else optax.chain(made, optax.scale(-LR))


@functools.cache
def training(factory, gradients=0.01):
    tx = made(factory)
    start = {name: {"w": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)} for name in "ab"}

    def step(key, carry):
        params, state = carry
        noise = jax.random.normal(key, (3, 4))
        grads = jax.tree.map(lambda _: gradients * (1 + 0.1 * noise), params)
        updates, state = tx.update(grads, state, params)
        return jnp.sqrt(jnp.mean(updates["b"]["w"] ** 2)), (
            optax.apply_updates(params, updates),
            state,
        )

    def one(n, carry):
        return step(jax.random.fold_in(jax.random.key(0), n), carry)[1]

    train = jax.jit(lambda n: jax.lax.fori_loop(0, n, one, (start, tx.init(start))))

    def turned(carry, key):
        size, carry = step(key, carry)
        return carry, size

    keys = jax.random.split(jax.random.key(1), 30)
    sizes = jax.jit(lambda carry: jax.lax.scan(turned, carry, keys)[1])
    return train, lambda tree: np.asarray(sizes((tree["params"], tree["opt_state"])))


@functools.cache
def trained(factory, steps, gradients=0.01):
    params, state = training(factory, gradients)[0](steps)
    return {"params": params, "opt_state": state}


def counted(tree, count):
    """The state with its count of steps at another number."""

    def put(path, leaf):
        is_count = jax.tree_util.keystr(path).rpartition(".")[2] in ("count", "t")
        return jnp.asarray(count, leaf.dtype) if is_count else leaf

    return tree | {"opt_state": jax.tree_util.tree_map_with_path(put, tree["opt_state"])}


def emptied(tree):
    """The state with slots that have restarted at 0, under the count that was reached."""

    def put(leaf):
        return jnp.zeros_like(leaf) if leaf.ndim else leaf

    return tree | {"opt_state": jax.tree.map(put, tree["opt_state"])}


def notes(done):
    assert done.code == 0, done.err
    return " ".join(done.document["notes"])


def number_in(text, pattern):
    found = re.search(pattern, text)
    return float(found[1]) if found else None


@pytest.mark.parametrize(("here", "there"), [(FEW, MANY), (MANY, FEW)])
@pytest.mark.parametrize(("factory", "kind"), CORRECTED)
def test_under_another_count_the_told_size_is_what_optax_takes(
    surgery, tmp_path, factory, kind, here, there
):
    sizes = training(factory)[1]
    state = trained(factory, there)
    ratio = sizes(counted(state, here))[0] / sizes(state)[0]
    run, donor = saved(tmp_path / "run", trained(factory, here)), saved(tmp_path / "donor", state)
    options = ("--optimizer-kind", factory, "--dry-run", "--json")
    grafted = notes(
        surgery("replace", run, tmp_path / "new", "params/b", "--with", donor, *options)
    )
    is_near = (
        "comes from" in grafted or "come from '" in grafted
    )  # steps as large, so nothing is told
    clock = re.search(r"and '(\S+)' \d+ here", grafted)
    told = number_in(grafted, r": the next steps would be (\S+) times")
    if (factory, kind) not in UNDER_ANOTHER_COUNT:
        assert told is None
        assert "if it is Adam" not in grafted
        assert is_near or f"will be is not worked out for {factory}" in grafted
    elif told is not None:
        np.testing.assert_allclose(told, ratio, rtol=WITHIN)
    else:  # by the decays of most, within a tenth
        assert is_near or "would be of another size" in grafted
        assert 1 / 1.1 < ratio < 1.1

    path = clock[1] if clock else "opt_state/0/count"
    set_to = notes(surgery("set", donor, tmp_path / "set", path, "--to", str(here), *options))
    told = number_in(set_to, r": the next steps there are (\S+) times")
    if (factory, kind) not in UNDER_ANOTHER_COUNT:
        assert f"will be is not worked out for {factory}" in set_to
        assert told is None
    elif told is not None:
        np.testing.assert_allclose(told, ratio, rtol=WITHIN)
    else:
        assert 1 / 1.15 < ratio < 1.15


@pytest.mark.parametrize("gradients", [1e-4, 1e-3, 1.0])
@pytest.mark.parametrize("factory", sorted({factory for factory, _ in UNDER_ANOTHER_COUNT}))
def test_the_size_that_is_told_is_that_of_large_gradients_and_of_small_ones(factory, gradients):
    """Yogi adds a thousandth to the root of its squares, beside which those of small gradients are nothing."""
    ratios = []
    for one in (0.01, gradients):
        state, sizes = trained(factory, MANY, one), training(factory, one)[1]
        ratios.append(sizes(counted(state, FEW))[0] / sizes(state)[0])
    np.testing.assert_allclose(*ratios, rtol=WITHIN)


@pytest.mark.parametrize(("factory", "kind"), CORRECTED)
def test_after_a_restart_the_told_size_is_what_optax_takes(surgery, tmp_path, factory, kind):
    state = trained(factory, MANY)
    largest = training(factory)[1](emptied(state)).max() / LR
    run = saved(tmp_path / "run", state)
    options = ("--optimizer-kind", factory, "--dry-run", "--json")
    said = notes(surgery("reset-optimizer", run, tmp_path / "new", *options))
    told = number_in(said, r": the next steps there are up to (\S+) learning rates")
    if (factory, kind) in AFTER_A_RESTART:
        np.testing.assert_allclose(told, largest, rtol=WITHIN)
    else:
        assert told is None
        assert f"will be is not worked out for {factory}" in said


@pytest.mark.parametrize("factory", ["adam", "lamb", "radam", "adamax"])
def test_without_a_name_the_size_is_told_of_adam_alone(surgery, tmp_path, factory):
    run, donor = (saved(tmp_path / str(steps), trained(factory, steps)) for steps in (FEW, MANY))
    said = [
        surgery("replace", run, tmp_path / "new", "params/b", "--with", donor, "--dry-run", "--json"),
        surgery("set", donor, tmp_path / "new", "opt_state/0/count", "--to", "30", "--dry-run", "--json"),
        surgery("reset-optimizer", donor, tmp_path / "new", "--dry-run", "--json"),
    ]  # fmt: skip
    for text in map(notes, said):
        assert ": if it is Adam, the next steps " in text


def test_a_decay_that_both_sides_store_is_the_one_that_sizes_are_told_by(surgery, tmp_path):
    tx = optax.inject_hyperparams(optax.adam)(LR, b2=0.99)
    start = {name: {"w": jnp.ones((3, 4))} for name in "ab"}
    grads = jax.tree.map(lambda leaf: 0.01 * leaf, start)
    state, states = tx.init(start), {}
    for step in range(1, MANY + 1):
        _, state = tx.update(grads, state, start)
        if step in (FEW, MANY):
            states[step] = {"params": start, "opt_state": state}
    run, donor = (saved(tmp_path / str(steps), states[steps]) for steps in (FEW, MANY))
    options = ("--optimizer-kind", "adam", "--dry-run", "--json")
    said = notes(surgery("replace", run, tmp_path / "new", "params/b", "--with", donor, *options))
    mixed = counted(states[MANY], FEW)["opt_state"]
    (own, _), (other, _) = (tx.update(grads, one, start) for one in (state, mixed))
    ratio = float(other["b"]["w"][0, 0] / own["b"]["w"][0, 0])
    told = number_in(said, r": the next steps would be (\S+) times")
    np.testing.assert_allclose(told, ratio, rtol=0.02)
    assert "stored b2 = 0.99)" in said
