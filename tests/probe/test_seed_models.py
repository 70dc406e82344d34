"""What a probe captures is bit-equal to what the documents' own code extracts, jitted alike."""

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from surgery_cli.probing.trace.forward import run_forward, sites_of
from surgery_cli.probing.trace.traces import stopped_at
from tests.installed import installed
from tests.probe import seed_models as own
from tests.probe.looking import linen_variables, look, nnx_module, same, traced, variables_of

BATCH = np.random.default_rng(0).standard_normal((2, 28, 28, 1), np.float32)


@pytest.fixture(scope="module")
def variables():
    return linen_variables(own.CNN(), BATCH)


@pytest.fixture(scope="module")
def captured(variables):
    """Everything that `capture_intermediates` captures, and the output."""

    @jax.jit
    def predict(variables, x):
        return own.CNN().apply(variables, x, capture_intermediates=True, mutable=["intermediates"])

    output, state = predict(variables, BATCH)
    return output, state["intermediates"]


@pytest.fixture(scope="module")
def looked(variables):
    return look("CNN", variables, BATCH)


def test_every_intermediate_of_the_cnn_equals_the_one_that_flax_captures(looked, captured):
    values, outputs = looked
    output, intermediates = captured

    assert same(outputs[0], output)
    assert same(values["."], intermediates["__call__"][0])
    for name in ("Conv_0", "Conv_1", "Dense_0", "Dense_1"):
        assert same(values[name], intermediates[name]["__call__"][0])


def test_modules_come_in_the_order_of_execution(looked):
    values, _ = looked

    outputs = [name for name in values if "(input)" not in name]
    assert outputs == ["Conv_0", "Conv_1", "Dense_0", "Dense_1", "."]


def test_a_filter_by_class_names_what_flax_captures_with_that_filter(variables):
    def filter_dense(module, _):
        return isinstance(module, nn.Dense)

    _, state = own.CNN().apply(
        variables, BATCH, capture_intermediates=filter_dense, mutable=["intermediates"]
    )
    _, found = traced("CNN", BATCH)

    dense = {s.name for s in sites_of(found) if s.label.kind == "Dense" and s.label.role == "out"}
    assert dense == set(state["intermediates"])


def test_a_filter_by_method_captures_the_calls_of_encode():
    x = np.ones((2, 8), np.float32)
    variables = linen_variables(own.AutoEncoder(), x)

    def filter_encodings(_, method_name):
        return method_name == "encode"

    _, state = jax.jit(
        lambda v, x: own.AutoEncoder().apply(
            v, x, capture_intermediates=filter_encodings, mutable=["intermediates"]
        )
    )(variables, x)
    values, _ = look("AutoEncoder", variables, x)

    assert same(values["encode"], state["intermediates"]["encode"][0])


def test_a_sown_value_is_seen_at_each_call_of_a_module_that_is_called_twice(variables):
    nested = {"params": {"SowCNN": variables["params"]}}

    @jax.jit
    def predict(variables, x):
        output, state = own.SowCNN2().apply(variables, x, mutable="intermediates")
        return output, state["intermediates"]["SowCNN"]["features"]

    output, features = predict(nested, BATCH)
    values, outputs = look("SowCNN2", nested, BATCH)

    assert len(features) == 2
    assert same(outputs[0], output)
    assert same(values["SowCNN/features"], features[0])
    assert same(values["SowCNN/features (2)"], features[1])
    assert {"SowCNN", "SowCNN (2)", "SowCNN/Dense_0 (2)"} <= values.keys()


def test_a_submodule_made_in_setup_runs_on_its_own():
    params = linen_variables(own.RefactoredCNN(), BATCH)["params"]

    @jax.jit
    def features(params, x):
        return own.RefactoredCNN().apply(
            {"params": params}, x, method=lambda module, x: module.features(x)
        )

    model, found = traced("RefactoredCNN", BATCH, run="features")
    seen = run_forward(found, variables_of(found, {"params": params}), [BATCH])

    assert same(seen.outputs[0], features(params, BATCH))
    assert {path[0] for path in model.collections()["params"]} == {"features"}


def test_stopping_before_a_layer_gives_the_truncated_sequential():
    params = linen_variables(own.SeqCNN(), BATCH)["params"]

    @jax.jit
    def features(params, x):
        return own.Sequential(own.SeqCNN().layers[0:7]).apply({"params": params}, x)

    _, found = traced("SeqCNN", BATCH)
    site = next(s for s in sites_of(found) if s.name == "layers_7 (input)")
    found = stopped_at(found, [site.point])
    seen = run_forward(found, variables_of(found, {"params": params}), [BATCH])

    assert same(seen.outputs[0], features(params, BATCH))
    assert "layers_9" not in {s.name for s in sites_of(found)}


@pytest.fixture(scope="module")
def nnx_cnn():
    return nnx_module(lambda: own.NnxCNN(rngs=nnx.Rngs(0)))


def test_the_nnx_cnn_gives_what_nnx_captures_and_its_layers_in_order(nnx_cnn):
    capture = installed(nnx, "capture")

    @nnx.jit
    def predict(model, x):
        return capture(model, nnx.Intermediate)(x)

    values, outputs = look("NnxCNN", nnx_cnn, BATCH)
    output, sown = predict(nnx_cnn, BATCH)

    assert same(outputs[0], output)
    assert same(values["features"], sown["features"].get_value()[0])
    assert same(values["."], outputs[0])
    assert [n for n in values if "(input)" not in n] == [
        "conv1", "conv2", "features", "dense1", "dense2", ".",
    ]  # fmt: skip


def test_the_nnx_cnn_equals_the_linen_cnn_on_the_same_params(nnx_cnn, looked, variables):
    params = variables["params"]
    state = nnx.state(nnx_cnn)
    names = {"conv1": "Conv_0", "conv2": "Conv_1", "dense1": "Dense_0", "dense2": "Dense_1"}
    for mine, theirs in names.items():
        state[mine]["kernel"].set_value(params[theirs]["kernel"])
        state[mine]["bias"].set_value(params[theirs]["bias"])
    model = nnx.clone(nnx_cnn)
    nnx.update(model, state)

    values, outputs = look("NnxCNN", model, BATCH)

    assert same(outputs[0], looked[1][0])
    for mine, theirs in names.items():
        assert same(values[mine], looked[0][theirs])


def test_an_nnx_module_that_is_called_twice_shows_both_calls(nnx_cnn):
    model = nnx_module(lambda: own.NnxTwice(rngs=nnx.Rngs(0)))
    values, _ = look("NnxTwice", model, BATCH)

    assert {"inner", "inner (2)", "inner/features", "inner/features (2)"} <= values.keys()
    assert same(values["inner"], values["inner (2)"])
