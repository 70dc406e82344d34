"""Runs a model of a test's file on given variables, and gives every observed value by the name of its place."""

from pathlib import Path

import jax
import numpy as np
from flax import nnx

from surgery_cli.probing.model.inputs import Input
from surgery_cli.probing.model.models import make_model, trace
from surgery_cli.probing.trace.forward import is_observable, run_forward, sites_of
from surgery_cli.script.user_code import load_object

HERE = Path(__file__).parent


def traced(model, *inputs, file="seed_models.py", **settings):
    """The model of a spec such as `CNN(features=16)`, its call traced with the inputs."""
    user = load_object(f"{HERE / file}:{model}")
    given = [Input("", "", np.asarray(x)) for x in inputs]
    made = make_model(user, given, static=settings.pop("static", {}), **settings)
    expected = user.run(made.collections)
    return made, trace(made, user, expected, made.call)


def variables_of(trace_, tree):
    """Variables by slot: of a linen variables' dict, or of an NNX module."""
    if isinstance(tree, nnx.Module):
        flat = {tuple(map(str, p)): v.get_value() for p, v in nnx.to_flat_state(nnx.state(tree))}
        return {slot: flat[slot[1]] for slot in trace_.slots}
    leaves = {
        tuple(str(getattr(k, "key", getattr(k, "idx", ""))) for k in where): leaf
        for where, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    return {slot: leaves[(slot[0], *slot[1])] for slot in trace_.slots}


def filled(tree, scale=0.05):
    """Values for shapes: what takes long is Flax's own initializers, and no test needs them."""
    generator = np.random.default_rng(1)
    leaves, structure = jax.tree_util.tree_flatten(tree)
    drawn = [(scale * generator.standard_normal(s.shape)).astype(s.dtype) for s in leaves]
    return jax.tree_util.tree_unflatten(structure, drawn)


def linen_variables(module, *inputs, scale=0.05, **static):
    """Variables of the right shapes for a linen module."""
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    shapes = jax.eval_shape(lambda *x: module.init(keys, *x, **static), *inputs)
    return filled(shapes, scale)


def nnx_module(factory):
    """An NNX module with values of the right shapes."""
    structure, state = nnx.split(nnx.eval_shape(factory))
    return nnx.merge(structure, filled(state))


def look(model, tree, *inputs, **settings):
    """Every observed value by the name of its place, and the outputs."""
    _, found = traced(model, *inputs, **settings)
    positions = {s.point.position for s in sites_of(found) if is_observable(s)}
    seen = run_forward(found, variables_of(found, tree), inputs, captured=positions)
    values = {entry.site.name: np.asarray(entry.values) for entry in seen.seen.values()}
    return values, seen.outputs


def same(a, b):
    """Bit for bit, shape and dtype included."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
