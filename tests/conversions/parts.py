"""What the small decoders of this folder compute, whatever keeps their weights: plain functions of arrays."""

import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "transformers"


class Sizes(NamedTuple):
    """What a decoder is like, from the `config.json` of a model of transformers."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    eps: float
    is_tied: bool
    is_gemma: bool

    @classmethod
    def of(cls, name):
        said = json.loads((FIXTURES / name / "config.json").read_text())
        heads, embed = said["num_attention_heads"], said["hidden_size"]
        return cls(
            layers=said["num_hidden_layers"],
            heads=heads,
            kv_heads=said["num_key_value_heads"],
            head_dim=said.get("head_dim", embed // heads),
            embed=embed,
            mlp=said["intermediate_size"],
            vocab=said["vocab_size"],
            eps=said["rms_norm_eps"],
            is_tied=said["tie_word_embeddings"],
            is_gemma=said["model_type"] == "gemma",
        )


def read(name):
    """The tokens that transformers' model has read, and its logits."""
    with np.load(FIXTURES / name / "logits.npz") as file:
        return file["tokens"], file["logits"]


def normed(x, scale, eps):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * scale


def turned(x, *, neighbours):
    """Rotary embeddings, x: [batch, length, heads, head_dim]; of neighbours (0, 1), (2, 3), …, or of the two halves."""
    length, half = x.shape[1], x.shape[-1] // 2
    angles = jnp.arange(length)[:, None] / 10_000 ** (jnp.arange(half) / half)
    cos, sin = (f(angles)[:, None, :] for f in (jnp.cos, jnp.sin))
    one, other = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
    parts = one * cos - other * sin, other * cos + one * sin
    return jnp.stack(parts, -1).reshape(x.shape) if neighbours else jnp.concatenate(parts, -1)


def attended(query, key, value, scale):
    """Causal attention; each head of key and value serves as many of query as there are more of these."""
    times = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(x, times, axis=2) for x in (key, value))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * scale
    length = query.shape[1]
    seen = jnp.tril(jnp.ones((length, length), bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -1e30)), value)


def gated(gate, up, *, is_gemma):
    return (jax.nn.gelu(gate, approximate=True) if is_gemma else jax.nn.silu(gate)) * up
