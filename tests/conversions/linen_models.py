"""Decoders in linen: one with a module for each layer, and one that is scanned, with the names that MaxText has."""

import flax.linen as nn
import jax.numpy as jnp

from tests.conversions.parts import Sizes, attended, gated, normed, turned


class Norm(nn.Module):
    sizes: Sizes
    offset: float = 0.0

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (self.sizes.embed,))
        return normed(x, scale + self.offset, self.sizes.eps)


def dense(features, name, axis=-1):
    return nn.DenseGeneral(features, axis=axis, use_bias=False, name=name)


class Attention(nn.Module):
    """``is_scaled``: what scores are multiplied by is part of the query's kernel."""

    sizes: Sizes
    neighbours: bool
    is_scaled: bool = False

    @nn.compact
    def __call__(self, x):
        sizes = self.sizes
        query, key, value = (
            dense((heads, sizes.head_dim), name)(x)
            for heads, name in (
                (sizes.heads, "query"),
                (sizes.kv_heads, "key"),
                (sizes.kv_heads, "value"),
            )
        )
        query, key = (turned(part, neighbours=self.neighbours) for part in (query, key))
        found = attended(query, key, value, 1.0 if self.is_scaled else sizes.head_dim**-0.5)
        return dense(sizes.embed, "out", axis=(-2, -1))(found)


class Mlp(nn.Module):
    sizes: Sizes
    names: tuple[str, str, str] = ("gate", "up", "down")

    @nn.compact
    def __call__(self, x):
        gate, up = (dense(self.sizes.mlp, name)(x) for name in self.names[:2])
        inner = gated(gate, up, is_gemma=self.sizes.is_gemma)
        return dense(self.sizes.embed, self.names[2])(inner)


class Layer(nn.Module):
    sizes: Sizes

    @nn.compact
    def __call__(self, x):
        sizes, offset = self.sizes, float(self.sizes.is_gemma)
        attention = Attention(sizes, neighbours=not sizes.is_gemma, name="attention")
        x = x + attention(Norm(sizes, offset, name="attention_norm")(x))
        return x + Mlp(sizes, name="mlp")(Norm(sizes, offset, name="mlp_norm")(x))


class Decoder(nn.Module):
    """Norms of Gemma add 1 to their weights; rotary embeddings of Llama turn neighbours here."""

    sizes: Sizes

    @nn.compact
    def __call__(self, tokens):
        sizes = self.sizes
        embed = nn.Embed(sizes.vocab, sizes.embed, name="embed")
        x = embed(tokens) * (sizes.embed**0.5 if sizes.is_gemma else 1.0)
        for n in range(sizes.layers):
            x = Layer(sizes, name=f"layers_{n}")(x)
        x = Norm(sizes, float(sizes.is_gemma), name="norm")(x)
        return embed.attend(x) if sizes.is_tied else dense(sizes.vocab, "head")(x)


class ScannedLayer(nn.Module):
    sizes: Sizes
    neighbours: bool

    @nn.compact
    def __call__(self, x, _):
        sizes = self.sizes
        before, behind = (
            ("pre_self_attention_norm", "pre_ffw_norm")
            if sizes.is_gemma
            else ("pre_self_attention_layer_norm", "post_self_attention_layer_norm")
        )
        attention = Attention(sizes, self.neighbours, is_scaled=True, name="self_attention")
        x = x + attention(Norm(sizes, name=before)(x))
        return x + Mlp(sizes, ("wi_0", "wi_1", "wo"), name="mlp")(Norm(sizes, name=behind)(x)), None


class ScannedLayers(nn.Module):
    sizes: Sizes
    neighbours: bool

    @nn.compact
    def __call__(self, x):
        sizes = self.sizes
        scanned = nn.scan(
            ScannedLayer,
            variable_axes={"params": 1},
            split_rngs={"params": True},
            length=sizes.layers,
        )
        x, _ = scanned(sizes, self.neighbours, name="layers")(x, None)
        x = Norm(sizes, name="decoder_norm")(x)
        return x if sizes.is_tied else dense(sizes.vocab, "logits_dense")(x)


class MaxTextDecoder(nn.Module):
    """As MaxText computes: queries are scaled by their kernel, Gemma's embeddings and norms by their own values.

    Logits of tied embeddings are divided by the root of the width, which is `normalize_embedding_logits` there.
    """

    sizes: Sizes
    neighbours: bool = False

    @nn.compact
    def __call__(self, tokens):
        sizes = self.sizes
        embed = nn.Embed(sizes.vocab, sizes.embed, name="token_embedder")
        x = ScannedLayers(sizes, self.neighbours, name="decoder")(embed(tokens))
        if not sizes.is_tied:
            return x
        return embed.attend(x) / (jnp.sqrt(sizes.embed) if sizes.is_gemma else 1.0)
