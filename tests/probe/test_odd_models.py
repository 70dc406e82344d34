"""Models on which the frameworks' own capture fails: every call is seen, and the output is bit-equal to the model's.

Through a loop it is that but for the last bits: with what is seen among its results XLA fuses the body in another way,
on some CPUs.
"""

import jax
import numpy as np
import pytest
from flax import nnx

from surgery_cli.probing.trace.forward import run_forward, sites_of
from tests.probe import odd_models as own
from tests.probe.looking import linen_variables, look, nnx_module, same, traced, variables_of

X = np.random.default_rng(0).standard_normal((2, 4), np.float32)


def linen(name, x=X, *, agree=same, **settings):
    """Values and outputs of a linen model of the file, and what the jitted model itself gives."""
    module = getattr(own, name)()
    variables = linen_variables(module, x)
    expected = jax.jit(module.apply)(variables, x)
    values, outputs = look(name, variables, x, file="odd_models.py", **settings)
    assert agree(outputs[0], expected)
    return values, variables["params"]


def but_for_rounding(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-7)


def dense(x, params):
    return x @ params["kernel"] + params["bias"]


def outputs_of(values):
    return [name for name in values if "(input)" not in name]


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_nn_scan_gives_each_iteration():
    values, params = linen("Scanned", agree=but_for_rounding)

    x, kernels = X, params["blocks"]["inner"]
    for number in range(3):
        inner = x @ kernels["kernel"][number] + kernels["bias"][number]
        close(values["blocks/inner"][number], inner)
        x = x + inner
        close(values["blocks[0]"][number], x)
    assert values["blocks/inner"].shape == (3, 2, 4)


def test_nn_remat_is_seen_inside():
    values, params = linen("Remat")

    close(values["first"], dense(X, params["first"]))
    assert outputs_of(values) == ["first", "second", "."]


def test_nn_jit_keeps_the_names_of_two_layers_that_are_otherwise_equal():
    values, params = linen("Jitted")

    close(values["first"], dense(X, params["first"]))
    close(values["second"], dense(dense(X, params["first"]), params["second"]))


def test_nn_jit_is_seen_although_the_model_has_run_before():
    own.Jitted().apply(linen_variables(own.Jitted(), X), X)

    assert outputs_of(linen("Jitted")[0]) == ["first", "second", "."]
    assert outputs_of(linen("Jitted")[0]) == ["first", "second", "."]


def test_nn_vmap_gives_every_member():
    values, params = linen("Vmapped")

    for number in range(3):
        member = {k: v[number] for k, v in params["members"].items()}
        close(values["members"][number], dense(X, member))


@pytest.mark.parametrize("sign", [1, -1])
def test_nn_cond_shows_which_branch_ran_and_what_it_gave(sign):
    x = sign * np.abs(X)
    variables = linen_variables(own.Branching(), x)
    _, found = traced("Branching", x, file="odd_models.py")
    positions = {s.point.position for s in sites_of(found)}
    seen = run_forward(found, variables_of(found, variables), [x], captured=positions)

    assert same(seen.outputs[0], jax.jit(own.Branching().apply)(variables, x))
    ran = {s.site.name: bool(s.ran) for s in seen.seen.values()}
    values = {s.site.name: s.values for s in seen.seen.values()}
    assert (ran["wide"], ran["out"], ran["narrow"]) == (sign > 0, sign > 0, sign < 0)
    name = "wide" if sign > 0 else "narrow"
    close(values[name], dense(x, variables["params"][name]))


def test_nn_rnn_gives_each_step_of_its_cell():
    x = np.ones((2, 5, 3), np.float32)
    values, _ = linen("Recurrent", x, agree=but_for_rounding)

    cell = values["cell[1]"]
    assert cell.shape == (5, 2, 4)
    assert same(np.moveaxis(cell, 0, 1), values["rnn"])


def test_raw_jax_vmap_around_a_module_is_seen():
    x = np.ones((3, 2, 4), np.float32) * X
    values, params = linen("RawVmap", x)

    close(values["dense (2)"], dense(x, params["dense"]))


def test_raw_lax_scan_around_a_module_is_seen():
    values, params = linen("RawScan")

    x = X
    for number in range(3):
        close(values["dense (2)"][number], dense(x, params["dense"]))
        x = np.tanh(dense(x, params["dense"]))


def test_a_tied_module_shows_each_of_its_methods():
    ids = np.array([[1, 2, 6]], np.int32)
    values, params = linen("Tied", ids)

    table = params["embed"]["embedding"]
    assert same(values["embed"], table[ids])
    close(values["embed.attend"], table[ids] @ table.T)


def test_modules_that_return_dicts_and_tuples_show_every_array():
    values, params = linen("Structured")

    assert outputs_of(values) == [
        "pair/Dense_0", "pair['both'][0]", "pair['both'][1]", "pair['h']", ".",
    ]  # fmt: skip
    close(values["pair['h']"], dense(X, params["pair"]["Dense_0"]))
    assert same(values["pair['both'][1]"], 2 * X)


def test_what_happens_inside_a_while_loop_is_listed_as_not_seen():
    variables = linen_variables(own.Whiling(), X)
    values, outputs = look("Whiling", variables, X, file="odd_models.py")
    _, found = traced("Whiling", X, file="odd_models.py")

    assert same(outputs[0], jax.jit(own.Whiling().apply)(variables, X))
    hidden = {s.name: s.point.hidden_in for s in sites_of(found) if s.point.hidden_in}
    assert hidden == {"dense (input) (2)": "while", "dense (2)": "while"}
    assert "dense (2)" not in values


def test_batch_norm_in_training_mode_gives_the_batchs_statistics_and_drops_the_update():
    module = own.Normed()
    variables = linen_variables(module, X)

    def train(variables, x):
        keys = {"params": jax.random.key(0)}
        return module.apply(variables, x, train=True, mutable=["batch_stats"], rngs=keys)[0]

    values, outputs = look("Normed", variables, X, file="odd_models.py", static={"train": True})
    assert same(outputs[0], jax.jit(train)(variables, X))
    close(values["BatchNorm_0"].mean(axis=0), variables["params"]["BatchNorm_0"]["bias"])


def test_a_model_with_an_axis_name_runs_under_a_vmap_of_that_name():
    module = own.Normed(axis_name="batch")
    variables = linen_variables(module, X)

    @jax.jit
    def mapped(variables, x):
        def one(x):
            keys = {"params": jax.random.key(0)}
            return module.apply(variables, x, train=True, mutable=["batch_stats"], rngs=keys)[0]

        return jax.vmap(one, axis_name="batch")(x)

    values, outputs = look(
        "Normed(axis_name='batch')", variables, X,
        file="odd_models.py", static={"train": True}, vmap_axis="batch",
    )  # fmt: skip
    assert same(outputs[0], mapped(variables, X))
    assert values["Dense_0"].shape == (2, 4)


def nnx_values(name, *, agree=same):
    module = nnx_module(lambda: getattr(own, name)(nnx.Rngs(0)))
    expected = nnx.jit(lambda m, x: m(x))(module, X)
    values, outputs = look(name, module, X, file="odd_models.py")
    assert agree(outputs[0], expected)
    return values, module


def test_nnx_modules_with_an_inherited_call_are_seen_once_each():
    values, module = nnx_values("Inheriting")

    assert outputs_of(values) == [
        "derived/linear", "derived", "deriving/linear", "deriving", ".",
    ]  # fmt: skip
    close(values["derived/linear"], dense(X, _linear(module.derived.linear)))


def test_nnx_scan_gives_each_iteration():
    values, module = nnx_values("NnxScanned", agree=but_for_rounding)

    x, linear = X, _linear(module.blocks.linear)
    for number in range(3):
        inner = x @ linear["kernel"][number] + linear["bias"][number]
        close(values["blocks/linear"][number], inner)
        x = np.maximum(inner, 0)
    assert values["blocks"].shape == (3, 2, 4)


def test_nnx_vmap_gives_every_member():
    values, module = nnx_values("NnxVmapped")

    linear = _linear(module.members.linear)
    for number in range(3):
        close(
            values["members/linear"][number],
            X @ linear["kernel"][number] + linear["bias"][number],
        )


def test_nnx_layers_in_a_list_and_a_tied_one_are_seen_through_nnx_jit():
    module = nnx.eval_shape(lambda: own.NnxListed(nnx.Rngs(0)))
    made, found = traced("NnxListed", X, file="odd_models.py", static={"train": False})
    names = [s.name for s in sites_of(found) if s.label.role == "out"]

    first = next("/".join(map(str, p)) for p, m in nnx.iter_modules(module) if m is module.again)
    second = ({"layers/0", "layers/1", "again"} - {first, "layers/0"}).pop()
    assert names == [first, second, f"{first} (2)", "norm", "dropout", "."]
    optional = {
        (name, path) for name, paths in made.collections().items()
        for path, wanted in paths.items() if wanted.is_optional
    }  # fmt: skip
    assert {path[-1] for _, path in optional} == {"key", "count"}


def _linear(module):
    return {
        "kernel": np.asarray(module.kernel.get_value()),
        "bias": np.asarray(module.bias.get_value()),
    }
