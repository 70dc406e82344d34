"""ViT between transformers and Flax: logits are those of transformers, and weights come back bit for bit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from safetensors.numpy import load_file

from tests.conversions.parts import FIXTURES
from tests.conversions.routes import applied

FOLDER = FIXTURES / "vit"
WIDTH, HEADS, LAYERS, INNER, PATCH, LABELS = 12, 3, 2, 20, (4, 4), 5
EPS = 1e-12
gelu = partial(jax.nn.gelu, approximate=False)


class LinenLayer(nn.Module):
    @nn.compact
    def __call__(self, x):
        attention = nn.MultiHeadDotProductAttention(HEADS, name="attention")
        x = x + attention(nn.LayerNorm(EPS, name="attention_norm")(x))
        inner = nn.Dense(INNER, name="up")(nn.LayerNorm(EPS, name="mlp_norm")(x))
        return x + nn.Dense(WIDTH, name="down")(gelu(inner))


class LinenVit(nn.Module):
    scan_axis: int | None = None

    def encoder(self, x):
        if self.scan_axis is not None:
            scan = nn.scan(
                lambda layer, carry, _: (layer(carry), None),
                variable_axes={"params": self.scan_axis},
                split_rngs={"params": True},
                length=LAYERS,
            )
            return scan(LinenLayer(name="layers"), x, None)[0]
        for n in range(LAYERS):
            x = LinenLayer(name=f"layers_{n}")(x)
        return x

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(WIDTH, PATCH, PATCH, "VALID", name="patch")(images)
        x = x.reshape(len(x), -1, WIDTH)
        cls = self.param("cls", nn.initializers.zeros, (1, 1, WIDTH))
        x = jnp.concatenate([jnp.tile(cls, (len(x), 1, 1)), x], axis=1)
        x = x + self.param("positions", nn.initializers.zeros, (1, x.shape[1], WIDTH))
        x = self.encoder(x)
        return nn.Dense(LABELS, name="head")(nn.LayerNorm(EPS, name="norm")(x)[:, 0])


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.attention_norm = nnx.LayerNorm(WIDTH, epsilon=EPS, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.mlp_norm = nnx.LayerNorm(WIDTH, epsilon=EPS, rngs=rngs)
        self.up = nnx.Linear(WIDTH, INNER, rngs=rngs)
        self.down = nnx.Linear(INNER, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(gelu(self.up(self.mlp_norm(x))))


class NnxVit(nnx.Module):
    def __init__(self, rngs):
        self.patch = nnx.Conv(3, WIDTH, PATCH, PATCH, padding="VALID", rngs=rngs)
        self.cls = nnx.Param(jnp.zeros((1, 1, WIDTH)))
        self.positions = nnx.Param(jnp.zeros((1, 5, WIDTH)))
        self.layers = nnx.List(NnxLayer(rngs) for _ in range(LAYERS))
        self.norm = nnx.LayerNorm(WIDTH, epsilon=EPS, rngs=rngs)
        self.head = nnx.Linear(WIDTH, LABELS, rngs=rngs)

    def __call__(self, images):
        x = self.patch(images).reshape(len(images), -1, WIDTH)
        x = jnp.concatenate([jnp.tile(self.cls[...], (len(x), 1, 1)), x], axis=1)
        x = x + self.positions[...]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def linen(scan_axis=None):
    images, model = jax.ShapeDtypeStruct((1, 8, 8, 3), np.float32), LinenVit(scan_axis)
    return jax.eval_shape(model.init, jax.random.key(0), images), jax.jit(model.apply)


def with_nnx():
    graph, state = nnx.split(nnx.eval_shape(lambda: NnxVit(nnx.Rngs(0))))
    return state, jax.jit(lambda state, images: nnx.merge(graph, state)(images))


class Route(NamedTuple):
    """The plan's name for a model, how to build it, and where its scan has the axis of layers."""

    name: str
    build: Callable[[], Any]
    scan_axis: int | None = None


ROUTES = [
    Route("linen", linen),
    Route("linen-scanned", partial(linen, 0), 0),
    Route("linen-scanned", partial(linen, 1), 1),
    Route("nnx", with_nnx),
]


def _changed(params, names, change):
    """Change the leaves of which the path has a key of these names."""

    def each(path, leaf):
        keys = {str(getattr(key, "key", getattr(key, "name", key))) for key in path}
        return change(leaf) if keys & names else leaf

    return jax.tree_util.tree_map_with_path(each, params)


def _swapped(params):
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    texts = [jax.tree_util.keystr(path) for path, _ in leaves]
    of = {text: leaf for text, (_, leaf) in zip(texts, leaves, strict=True)}

    def other(text):
        if "query" in text:
            return text.replace("query", "key")
        return text.replace("'key'", "'query'")

    return structure.unflatten([of[other(text)] for text in texts])


MUTANTS = {
    "query and key swapped": _swapped,
    "height and width of patches swapped": lambda params: _changed(
        params, {"patch"}, lambda leaf: leaf.swapaxes(0, 1) if leaf.ndim == 4 else leaf
    ),
    "inputs of patches in another order": lambda params: _changed(
        params,
        {"patch"},
        lambda leaf: leaf.transpose(2, 0, 1, 3).reshape(leaf.shape) if leaf.ndim == 4 else leaf,
    ),
    "heads and their width swapped": lambda params: _changed(
        params,
        {"query"},
        lambda leaf: (
            leaf.reshape(*leaf.shape[:-2], -1, HEADS).swapaxes(-1, -2)
            if leaf.shape[-2] == HEADS  # of a bias, layers may stand between them
            else leaf
        ),
    ),
    "scale of the norms dropped": lambda params: _changed(params, {"scale"}, jnp.ones_like),
}


def reordered(params, axis):
    """Layers in another order, of which each leaf has an axis of its own."""
    return _changed(params, {"layers"}, lambda leaf: jnp.flip(leaf, axis))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.name}-{route.scan_axis}")
def test_logits_are_those_of_transformers_and_weights_come_back(tmp_path, route):
    source, axis = FOLDER / "model.safetensors", route.scan_axis
    given = {} if axis is None else {"scan_axis": axis}
    plan = f"vit/hf-to-{route.name}.yaml"
    there = applied(source, tmp_path / "there", plan, heads=HEADS, **given)
    target, logits_of = route.build()
    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore(there, target)
    with np.load(FOLDER / "logits.npz") as file:
        images, logits = file["images"].transpose(0, 2, 3, 1), file["logits"]
    assert abs(logits_of(params, images) - logits).max() < 1e-4
    more = {} if axis is None else {"order of layers": partial(reordered, axis=axis)}
    for name, mutant in {**MUTANTS, **more}.items():
        assert abs(logits_of(mutant(params), images) - logits).max() > 0.1, name
    back = applied(there, tmp_path / "back", f"vit/{route.name}-to-hf.yaml", **given)
    found, expected = load_file(back / "model.safetensors"), load_file(source)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, strict=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_scanned_leaves_are_those_of_the_layers_on_the_axis(tmp_path, axis):
    source = FOLDER / "model.safetensors"
    apart = restored(applied(source, tmp_path / "apart", "vit/hf-to-linen.yaml", heads=HEADS))
    plan = "vit/hf-to-linen-scanned.yaml"
    one = restored(applied(source, tmp_path / "one", plan, heads=HEADS, scan_axis=axis))
    found, structure = jax.tree.flatten(one["params"]["layers"])
    layers = [jax.tree.leaves(apart["params"][f"layers_{n}"]) for n in range(LAYERS)]
    assert len(found) == structure.num_leaves == len(layers[0])
    for leaf, parts in zip(found, zip(*layers, strict=True), strict=True):
        np.testing.assert_array_equal(leaf, np.stack(parts, axis), strict=True)


def restored(path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)
