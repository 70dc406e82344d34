"""The shipped conversions, run by the command line, and the models into which Orbax restores what they write."""

import contextlib
import io
from functools import cache, partial

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx

from surgery_cli.cli.main import run
from tests.conversions import linen_models, nnx_models
from tests.conversions.parts import FIXTURES, Sizes, read

PLANS = FIXTURES.parents[2] / "plans"


def surgery(*words):
    """Run a command; what it printed, and its exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(list(map(str, words)))
        except SystemExit as end:
            code = end.code or 0
    return out.getvalue() + err.getvalue(), code


def applied(source, destination, plan, **settings):
    """The destination, once the plan was applied."""
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    text, code = surgery("apply", source, destination, PLANS / plan, *given)
    assert code == 0, text
    return destination


class Linen:
    """A linen model, whose variables are what is restored."""

    def __init__(self, model):
        self.model = model
        tokens = jax.ShapeDtypeStruct((1, 2), np.int32)
        self.target = jax.eval_shape(model.init, jax.random.key(0), tokens)
        self.apply = jax.jit(model.apply)

    def restored(self, path):
        return _restored(path, self.target)


class MaxText(Linen):
    """The same, in the state that MaxText saves: params of params."""

    def restored(self, path):
        return _restored(path, {"params": self.target})["params"]


class Nnx:
    """An NNX model, whose state is what is restored."""

    def __init__(self, sizes):
        model = nnx.eval_shape(lambda: nnx_models.Decoder(sizes, nnx.Rngs(0)))
        graph, self.target = nnx.split(model)
        self.apply = jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens))

    def restored(self, path):
        return _restored(path, self.target)


def _restored(path, target):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


MODELS = {
    "linen": lambda sizes, **_: Linen(linen_models.Decoder(sizes)),
    "nnx": lambda sizes, **_: Nnx(sizes),
    "maxtext": lambda sizes, **more: MaxText(linen_models.MaxTextDecoder(sizes, **more)),
}


@cache
def model(route, fixture, **more):
    """The model of a route, of the fixture's sizes."""
    return MODELS[route](Sizes.of(fixture), **more)


def missed(route, fixture, params, **more):
    """By how much logits differ from those of transformers, at most."""
    tokens, logits = read(fixture)
    found = model(route, fixture, **more).apply(params, tokens)
    return float(abs(found - logits).max())


def _of(names, change):
    """Change the leaves below nodes of these names."""

    def each(path, leaf):
        keys = {str(getattr(key, "key", getattr(key, "name", key))) for key in path}
        return change(leaf) if keys & names else leaf

    return partial(jax.tree_util.tree_map_with_path, each)


def _swapped(params):
    """Query and key in each other's place, as far as there are as many of them."""

    def walk(node):
        if not hasattr(node, "items"):
            return node
        if "query" not in node:
            return type(node)({name: walk(inner) for name, inner in node.items()})
        query, key = (jax.tree.leaves(node[name])[0] for name in ("query", "key"))
        times = query.shape[-2] // key.shape[-2]
        new = {"query": np.repeat(key, times, axis=-2), "key": query[..., ::times, :]}
        put = {
            name: jax.tree.map(lambda _, value=value: value, node[name])
            for name, value in new.items()
        }
        return type(node)({**dict(node.items()), **put})

    return walk(params)


NORMS = {
    "attention_norm",
    "mlp_norm",
    "norm",
    "decoder_norm",
    "pre_self_attention_norm",
    "pre_ffw_norm",
    "pre_self_attention_layer_norm",
    "post_self_attention_layer_norm",
}
MUTANTS = {
    "rotary halves swapped": _of({"query", "key"}, lambda x: np.roll(x, x.shape[-1] // 2, -1)),
    "query and key swapped": _swapped,
    "norm offset dropped": _of(NORMS, lambda x: x - 1),
}
