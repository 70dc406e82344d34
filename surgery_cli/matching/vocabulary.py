"""What frameworks call the same thing: all that `derive` knows of names, in one table."""

from __future__ import annotations

from typing import Final

CONCEPTS: Final[dict[str, str]] = {
    "attention": (
        "attn, attention, self attn, self attention, attention self, attention attention, "
        "attn attn, multi head attention, multi head dot product attention, mha"
    ),
    "cross attention": (
        "cross attn, crossattention, crossattention self, cross attention, enc dec attention, "
        "encoder decoder attention, encoder attn, encdec attention"
    ),
    "query": "q, query, q proj, query proj, wq, q lin, to q",
    "key": "k, key, k proj, key proj, wk, k lin, to k",
    "value": "v, value, v proj, value proj, wv, v lin, to v",
    "attention out": "o, o proj, out, out proj, to out",
    "attention+attention out": (
        "attn c proj, attn proj, attn dense, attention dense, attention proj, attention output dense, "
        "attn output dense, attention output, attention wo, wo attention"
    ),
    "qkv": "qkv, qkv proj, in proj, c attn, query key value, wqkv",
    "gate and up": "gate up proj, gate up, gating einsum, wi fused, gate and up",
    "key and value": "kv, kv proj, kv einsum, key value, wkv",
    "feed forward": (
        "mlp, ffn, ff, feed forward, mlp block, dense relu dense, feedforward, ffw, mlp dense"
    ),
    "gate": "gate, gate proj, w1, wi 0, gating, w gate",
    "up": ("up, up proj, fc1, fc 1, c fc, fc in, lin1, linear1, w3, wi 1, w up, wi, dense h to 4h"),
    "feed forward+up": (
        "intermediate dense, mlp dense 0, mlp block dense 0, mlp linear 1, mlp linear1, mlp "
        "block linear 1"
    ),
    "down": ("down, down proj, fc2, fc 2, fc out, lin2, linear2, w2, wo, w down, dense 4h to h"),
    "feed forward+down": (
        "output dense, mlp c proj, mlp dense 1, mlp block dense 1, mlp proj, mlp linear 2, "
        "mlp linear2, mlp block linear 2"
    ),
    "norm": "norm, layer norm, layernorm, rms norm, rmsnorm, ln",
    "batch norm": "bn, batch norm, batchnorm",
    "first norm": (
        "input layernorm, ln 1, ln1, layernorm before, attention norm, norm1, norm 1, attn "
        "norm, layer norm 0, layernorm 0, pre self attention layer norm, pre attention norm, "
        "layer norm before, input layer norm, sa layer norm, self attn layer norm, attention "
        "output layer norm, attn ln, pre self attention norm"
    ),
    "second norm": (
        "post attention layernorm, ln 2, ln2, layernorm after, ffn norm, norm2, norm 2, layer "
        "norm 1, layernorm 1, post self attention layer norm, pre ffw norm, pre mlp layer "
        "norm, layer norm after, post attention layer norm, final layer norm inner, output "
        "layer norm, post attention norm, mlp norm, mlp ln, pre feedforward layernorm"
    ),
    "final norm": (
        "ln f, final layernorm, final norm, final layer norm, decoder norm, encoder norm, "
        "model norm, transformer norm, post layernorm, ln final, output norm, vit layernorm, "
        "model layernorm, layernorm final"
    ),
    "token embedding": (
        "embed tokens, wte, token embedder, word embeddings, embedder, tok embeddings, token "
        "embedding, token embeddings, shared, token embed, embeddings word embeddings, embed, "
        "embedder input, tok embed, shared embedding"
    ),
    "position embedding": (
        "wpe, position embeddings, position embedding, pos embed, pos embedding, posembed, "
        "positional embedding, embed positions, posembed input, position embedder, positions, "
        "embeddings position embeddings"
    ),
    "type embedding": "token type embeddings, type embeddings, segment embeddings",
    "patch embedding": (
        "patch embeddings, patch embedding, patch embed, patch embeddings projection, patch "
        "embed proj, patchify, embeddings patch embeddings projection, patch projection, conv "
        "proj, stem conv"
    ),
    "class token": "cls, cls token, class token, class embedding",
    "logits": (
        "lm head, output, logits dense, head, classifier, logits, score, fc final, output "
        "layer, predictions decoder, unembed, lm head decoder"
    ),
    "relative bias": "relative attention bias, relpos bias, rel pos bias, rel embedding",
    "layers": (
        "layer, layers, block, blocks, h, encoderblock, decoderblock, encoder layer, decoder "
        "layer, resblocks"
    ),
    "transformer": "model, transformer, module, backbone",
    "convolution": "conv, convolution, conv2d",
    "linear": "dense, linear, lin, fc, proj, projection",
    "downsample": "downsample, shortcut, conv proj skip, skip",
}
"""What is meant, by what it is called: names as words, parted by commas; the longest that fits counts. `+`: both."""

ROLES: Final[dict[str, str]] = {
    "weight": "weight, weights, kernel, scale, embedding, gamma, w",
    "bias": "bias, biases, beta, b",
    "mean": "mean, running mean, moving mean",
    "variance": "var, variance, running var, moving variance",
    "lora a": "lora a",
    "lora b": "lora b",
}
"""What the last words of a path say the leaf is to its layer."""

WRAPPERS: Final = ("value", "raw value")
"""Last words that say nothing: how NNX spells a variable."""

CUSTOMS: Final[dict[tuple[str, str, int], str]] = {
    ("weight", "kernel", 2): "turned",
    ("kernel", "weight", 2): "turned",
    ("kernel", "weight", 3): "turned",
    ("weight", "kernel", 4): "[2, 3, 1, 0]",
    ("kernel", "weight", 4): "[3, 2, 0, 1]",
    ("weight", "kernel", 5): "[2, 3, 4, 1, 0]",
    ("kernel", "weight", 5): "[4, 3, 0, 1, 2]",
}
"""What becomes of the axes where a leaf is called one thing here and another there, by how many it has here.

PyTorch keeps (out, in) and (out, in, height, width), Flax (in, out) and (height, width, in, out).
"""

FUSED: Final[dict[str, tuple[str, ...]]] = {
    "qkv": ("query", "key", "value"),
    "key and value": ("key", "value"),
    "gate and up": ("gate", "up"),
}
"""What several are called that stand in one leaf, in the order in which they do."""
