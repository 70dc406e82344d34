"""ViT between transformers and Flax: logits are those of transformers, and weights come back bit for bit."""

from functools import partial

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
    is_scanned: bool = False

    def encoder(self, x):
        if self.is_scanned:
            scan = nn.scan(
                lambda layer, carry, _: (layer(carry), None),
                variable_axes={"params": 0},
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


def linen(*, is_scanned=False):
    images, model = jax.ShapeDtypeStruct((1, 8, 8, 3), np.float32), LinenVit(is_scanned)
    return jax.eval_shape(model.init, jax.random.key(0), images), jax.jit(model.apply)


def with_nnx():
    graph, state = nnx.split(nnx.eval_shape(lambda: NnxVit(nnx.Rngs(0))))
    return state, jax.jit(lambda state, images: nnx.merge(graph, state)(images))


MODELS = {"linen": linen, "linen-scanned": partial(linen, is_scanned=True), "nnx": with_nnx}


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
        lambda leaf: leaf.reshape(*leaf.shape[:-2], -1, HEADS).swapaxes(-1, -2),
    ),
    "scale of the norms dropped": lambda params: _changed(params, {"scale"}, jnp.ones_like),
}


SCANNED = {
    "layers in another order": lambda params: _changed(
        params, {"layers"}, lambda leaf: leaf[::-1] if len(leaf) == LAYERS else leaf
    )
}


@pytest.mark.parametrize("route", MODELS)
def test_logits_are_those_of_transformers_and_weights_come_back(tmp_path, route):
    source = FOLDER / "model.safetensors"
    there = applied(source, tmp_path / "there", f"vit/hf-to-{route}.yaml", heads=HEADS)
    target, logits_of = MODELS[route]()
    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore(there, target)
    with np.load(FOLDER / "logits.npz") as file:
        images, logits = file["images"].transpose(0, 2, 3, 1), file["logits"]
    assert abs(logits_of(params, images) - logits).max() < 1e-4
    more = SCANNED if route == "linen-scanned" else {}
    for name, mutant in {**MUTANTS, **more}.items():
        assert abs(logits_of(mutant(params), images) - logits).max() > 0.1, name
    back = applied(there, tmp_path / "back", f"vit/{route}-to-hf.yaml")
    found, expected = load_file(back / "model.safetensors"), load_file(source)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, strict=True)
