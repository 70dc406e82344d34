"""Gradients at module calls and of params, against Flax's own `perturb` and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.trace.forward import sites_of
from surgery_cli.probing.trace.gradients import (
    can_have_gradient,
    checked_scalar,
    random_projection,
    run_gradients,
)
from tests.probe import odd_models as odd
from tests.probe import seed_models as own
from tests.probe.looking import linen_variables, same, traced, variables_of

X = np.random.default_rng(0).standard_normal((3, 4), np.float32)
Y = np.random.default_rng(1).standard_normal((3, 2), np.float32)


def gradients(model, variables, x, loss, **settings):
    """Statistics by name, values by name, and the whole result."""
    _, found = traced(model, x, **settings)
    sites = {s.point.position: s.name for s in sites_of(found) if can_have_gradient(s)}
    held = variables_of(found, variables)
    measured = run_gradients(found, held, [x], loss)
    kept = run_gradients(found, held, [x], loss, captured=set(sites))
    return (
        {sites[at]: m for at, m in measured.sites.items()},
        {sites[at]: v for at, v in kept.values.items()},
        kept,
    )


def test_gradients_of_intermediates_equal_those_that_perturb_gives():
    model = own.Model()
    variables = linen_variables(model, X, scale=0.5)
    perturbations = jax.tree.map(jnp.zeros_like, variables["perturbations"])
    params = variables["params"]

    def loss_fn(params, perturbations, x, y):
        predicted = model.apply({"params": params, "perturbations": perturbations}, x)
        return jnp.mean((predicted - y) ** 2)

    expected = jax.jit(jax.grad(loss_fn, argnums=1))(params, perturbations, X, Y)
    of_params = jax.jit(jax.grad(loss_fn))(params, perturbations, X, Y)
    _, values, whole = gradients(
        "Model", {"params": params}, X, lambda out: own.mean_squared(out, Y)
    )

    assert same(values["hidden"], expected["hidden"])
    assert same(values["logits"], expected["logits"])
    assert same(values["Dense_1"], expected["logits"])
    for (collection, path), found in whole.variable_values.items():
        assert collection == "params"
        assert same(found, of_params[path[0]][path[1]])


def test_statistics_are_those_of_the_gradients_themselves():
    variables = linen_variables(own.Model(), X, scale=0.5)
    measured, values, _ = gradients(
        "Model", {"params": variables["params"]}, X, lambda out: own.mean_squared(out, Y)
    )

    hidden = values["hidden"].astype(np.float64)
    assert measured["hidden"].mean == pytest.approx(hidden.mean(), rel=1e-5)
    assert measured["hidden"].std == pytest.approx(hidden.std(), rel=1e-5)
    assert measured["hidden"].max == pytest.approx(hidden.max(), rel=1e-6)
    assert measured["hidden"].zeros == 0
    assert measured["hidden"].size == 24


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["Scanned", "Remat", "RawScan", "Jitted", "Vmapped"])
def test_loops_and_remat_are_seen_in_the_backward_pass_too(name):
    model = getattr(odd, name)()
    variables = linen_variables(model, X, scale=0.5)

    def loss_fn(params, x):
        return (model.apply({"params": params}, x) ** 3).sum()

    expected = jax.jit(jax.grad(loss_fn))(variables["params"], X)
    measured, values, whole = gradients(
        name, variables, X, lambda out: (out**3).sum(), file="odd_models.py"
    )

    for (_, path), found in whole.variable_values.items():
        wanted = expected
        for key in path:
            wanted = wanted[key]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    assert same(values["."], np.asarray(3 * jax.jit(model.apply)(variables, X) ** 2))
    for place, kept in values.items():
        rms = np.sqrt((kept.astype(np.float64) ** 2).mean())
        assert measured[place].rms == pytest.approx(rms, rel=1e-4), place


def test_a_scan_gives_the_gradient_of_every_iteration():
    model = odd.Scanned()
    variables = linen_variables(model, X, scale=0.5)
    _, values, _ = gradients(
        "Scanned", variables, X, lambda out: (out**2).sum(), file="odd_models.py"
    )

    kernels = variables["params"]["blocks"]["inner"]["kernel"]
    last = 2 * np.asarray(jax.jit(model.apply)(variables, X))
    for number in (2, 1, 0):
        np.testing.assert_allclose(values["blocks/inner"][number], last, rtol=1e-5)
        last = last + last @ kernels[number].T


def test_a_branch_that_was_not_taken_has_no_gradient():
    x = np.abs(X)
    variables = linen_variables(odd.Branching(), x, scale=0.5)
    measured, _, _ = gradients(
        "Branching", variables, x, lambda out: (out**2).sum(), file="odd_models.py"
    )

    assert measured["wide"].rms > 0
    assert measured["narrow"].rms == 0


def test_the_default_loss_reaches_through_a_softmax():
    loss = random_projection(0)

    def through(x):
        return loss(jax.nn.softmax(x))

    assert np.abs(jax.grad(through)(X)).max() > 1e-2
    assert np.abs(jax.grad(lambda x: jax.nn.softmax(x).mean())(X)).max() < 1e-6
    assert float(loss(X)) != float(random_projection(1)(X))


def test_a_loss_that_is_no_scalar_is_refused():
    with pytest.raises(SurgeryError, match=r"float32\[3,4\]"):
        checked_scalar(jnp.asarray(X))
    with pytest.raises(SurgeryError, match="int32"):
        checked_scalar(jnp.int32(3))
    with pytest.raises(SurgeryError, match="no floating values"):
        random_projection(0)(jnp.arange(3))
