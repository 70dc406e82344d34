"""The decoder in NNX; rotary embeddings turn the two halves of a head, as transformers has them."""

import jax.numpy as jnp
from flax import nnx

from tests.conversions.parts import attended, gated, normed, turned


class Norm(nnx.Module):
    def __init__(self, sizes):
        self.sizes = sizes
        self.scale = nnx.Param(jnp.ones(sizes.embed))

    def __call__(self, x):
        return normed(x, self.scale[...] + self.sizes.is_gemma, self.sizes.eps)


def linear(inputs, outputs, rngs, axis=-1):
    return nnx.LinearGeneral(inputs, outputs, axis=axis, use_bias=False, rngs=rngs)


class Attention(nnx.Module):
    def __init__(self, sizes, rngs):
        heads, kv_heads = (sizes.heads, sizes.head_dim), (sizes.kv_heads, sizes.head_dim)
        self.query = linear(sizes.embed, heads, rngs)
        self.key = linear(sizes.embed, kv_heads, rngs)
        self.value = linear(sizes.embed, kv_heads, rngs)
        self.out = linear(heads, sizes.embed, rngs, axis=(-2, -1))

    def __call__(self, x):
        query, key = (turned(part(x), neighbours=False) for part in (self.query, self.key))
        return self.out(attended(query, key, self.value(x), query.shape[-1] ** -0.5))


class Mlp(nnx.Module):
    def __init__(self, sizes, rngs):
        self.is_gemma = sizes.is_gemma
        self.gate, self.up = (linear(sizes.embed, sizes.mlp, rngs) for _ in range(2))
        self.down = linear(sizes.mlp, sizes.embed, rngs)

    def __call__(self, x):
        return self.down(gated(self.gate(x), self.up(x), is_gemma=self.is_gemma))


class Layer(nnx.Module):
    def __init__(self, sizes, rngs):
        self.attention_norm, self.mlp_norm = Norm(sizes), Norm(sizes)
        self.attention, self.mlp = Attention(sizes, rngs), Mlp(sizes, rngs)

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nnx.Module):
    def __init__(self, sizes, rngs):
        self.sizes = sizes
        self.embed = nnx.Embed(sizes.vocab, sizes.embed, rngs=rngs)
        self.layers = nnx.List(Layer(sizes, rngs) for _ in range(sizes.layers))
        self.norm = Norm(sizes)
        if not sizes.is_tied:
            self.head = linear(sizes.embed, sizes.vocab, rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) * (self.sizes.embed**0.5 if self.sizes.is_gemma else 1.0)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.embed.attend(x) if self.sizes.is_tied else self.head(x)
