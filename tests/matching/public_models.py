"""Names and shapes of public models: as PyTorch has them, as JAX has them, and which leaf is which.

The lists of names are those that `transformers` 5 gives of tiny models (`public_models.json`, made by
`make_public_models.py`); those of JAX models are written out of their sources: Flax in `transformers` 4 (`Flax…Model`),
MaxText, `vision_transformer`, T5X.
"""

import json
import re
from pathlib import Path

import numpy as np

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

TORCH = json.loads((Path(__file__).parent / "public_models.json").read_text())
"""Name of the model → name of the leaf → shape."""


def tree_of(shapes):
    """Names with slashes as a tree of float32 arrays."""
    return TreeSpec(
        {
            path: LeafSpec(kind=LeafKind.ARRAY, shape=tuple(shape), dtype="float32")
            for path, shape in shapes.items()
        }
    )


def torch_tree(name):
    """As safetensors are opened: a name is one key."""
    return tree_of({LeafPath((text,)): shape for text, shape in TORCH[name].items()})


class Conversion:
    """One way of naming a model in JAX: rules from PyTorch's names to paths and shapes there."""

    def __init__(self, model, *rules, stack=None, left_out=()):
        """``rules``: regular expression, path (what stands behind `#` is the layer, if they are stacked), and what
        becomes of the values. ``stack``: the axis. ``left_out``: what has no place there.
        """
        self.model, self.stack, self.left_out = model, stack, left_out
        self.sources = {}
        """Of every leaf its sources, in the order of their layers, and what becomes of them."""
        for name in TORCH[model]:
            found = ((re.fullmatch(pattern, name), to, change) for pattern, to, change in rules)
            match, to, change = next((one for one in found if one[0]), (None, None, None))
            if match is None:
                assert any(re.fullmatch(one, name) for one in left_out), name
                continue
            text = match.expand(to).partition("#")[0]
            self.sources.setdefault(text, ([], change))[0].append(name)
        shapes = {name: np.empty(shape, np.float32) for name, shape in TORCH[model].items()}
        self.old = torch_tree(model)
        self.new = tree_of(
            {
                LeafPath(text.split("/")): values.shape
                for text, values in self.values(shapes).items()
            }
        )

    @property
    def truth(self):
        """Which leaf is which: pairs of names, PyTorch's first."""
        return {(name, text) for text, (names, _) in self.sources.items() for name in names}

    def values(self, old):
        """What PyTorch's leaves are there."""
        found = {}
        for text, (names, change) in self.sources.items():
            members = [change(old[name]) for name in names]
            found[text] = (
                members[0]
                if self.stack is None or len(names) == 1
                else np.stack(members, self.stack)
            )
        return {text: np.ascontiguousarray(values) for text, values in found.items()}


def same(values):
    return values


def t(values):
    return values.T


def image_kernel(values):
    """(out, in, height, width) as Flax has it."""
    return values.transpose(2, 3, 1, 0)


def heads_out(size):
    """(out, in) as (in, heads, size of a head)."""
    return lambda values: values.T.reshape(values.shape[1], -1, size)


def heads_in(size):
    """(out, in) as (heads, size of a head, out)."""
    return lambda values: values.T.reshape(-1, size, values.shape[0])


def heads(size):
    return lambda values: values.reshape(-1, size)


LLAMA = ("llama", "gemma")
_LAYER = r"model\.layers\.(\d+)\."


def flax_llama(model):
    return Conversion(
        model,
        (_LAYER + r"(self_attn|mlp)\.(\w+)\.weight", r"params/model/layers/\1/\2/\3/kernel", t),
        (_LAYER + r"(\w+)\.weight", r"params/model/layers/\1/\2/weight", same),
        (r"model\.embed_tokens\.weight", "params/model/embed_tokens/embedding", same),
        (r"model\.norm\.weight", "params/model/norm/weight", same),
        (r"lm_head\.weight", "params/lm_head/kernel", t),
    )


def maxtext_llama(model, *, scanned):
    end = r"#\1" if scanned else ""
    node = "params/params/decoder/layers" + ("" if scanned else r"_\1")
    return Conversion(
        model,
        *(
            (
                _LAYER + rf"self_attn\.{a}_proj\.weight",
                f"{node}/self_attention/{b}/kernel{end}",
                change,
            )
            for a, b, change in (
                ("q", "query", heads_out(16)),
                ("k", "key", heads_out(16)),
                ("v", "value", heads_out(16)),
                ("o", "out", heads_in(16)),
            )
        ),
        *(
            (_LAYER + rf"mlp\.{a}_proj\.weight", f"{node}/mlp/{b}/kernel{end}", t)
            for a, b in (("gate", "wi_0"), ("up", "wi_1"), ("down", "wo"))
        ),
        (
            _LAYER + r"input_layernorm\.weight",
            f"{node}/pre_self_attention_layer_norm/scale{end}",
            same,
        ),
        (
            _LAYER + r"post_attention_layernorm\.weight",
            f"{node}/post_self_attention_layer_norm/scale{end}",
            same,
        ),
        (r"model\.embed_tokens\.weight", "params/params/token_embedder/embedding", same),
        (r"model\.norm\.weight", "params/params/decoder/decoder_norm/scale", same),
        (r"lm_head\.weight", "params/params/decoder/logits_dense/kernel", t),
        stack=1 if scanned else None,
    )


def flax_bert():
    at = r"encoder\.layer\.(\d+)\."
    return Conversion(
        "bert",
        (r"embeddings\.(\w+_embeddings)\.weight", r"embeddings/\1/embedding", same),
        (r"embeddings\.LayerNorm\.weight", "embeddings/LayerNorm/scale", same),
        (r"embeddings\.LayerNorm\.bias", "embeddings/LayerNorm/bias", same),
        (at + r"(\w+)\.(\w+)\.LayerNorm\.weight", r"encoder/layer/\1/\2/\3/LayerNorm/scale", same),
        (
            at + r"attention\.(\w+)\.LayerNorm\.weight",
            r"encoder/layer/\1/attention/\2/LayerNorm/scale",
            same,
        ),
        (at + r"(\w+)\.LayerNorm\.weight", r"encoder/layer/\1/\2/LayerNorm/scale", same),
        (at + r"(\w+)\.(\w+)\.(\w+)\.weight", r"encoder/layer/\1/\2/\3/\4/kernel", t),
        (at + r"(\w+)\.(\w+)\.weight", r"encoder/layer/\1/\2/\3/kernel", t),
        (at + r"(\w+)\.(\w+)\.(\w+)\.bias", r"encoder/layer/\1/\2/\3/\4/bias", same),
        (at + r"(\w+)\.(\w+)\.bias", r"encoder/layer/\1/\2/\3/bias", same),
        (r"pooler\.dense\.weight", "pooler/dense/kernel", t),
        (r"pooler\.dense\.bias", "pooler/dense/bias", same),
    )


def flax_gpt2():
    at = r"transformer\.h\.(\d+)\."
    return Conversion(
        "gpt2",
        (r"transformer\.(w.e)\.weight", r"transformer/\1/embedding", same),
        (at + r"(ln_\d)\.weight", r"transformer/h/\1/\2/scale", same),
        (at + r"(ln_\d)\.bias", r"transformer/h/\1/\2/bias", same),
        (at + r"(\w+)\.(\w+)\.weight", r"transformer/h/\1/\2/\3/kernel", same),
        (at + r"(\w+)\.(\w+)\.bias", r"transformer/h/\1/\2/\3/bias", same),
        (r"transformer\.ln_f\.weight", "transformer/ln_f/scale", same),
        (r"transformer\.ln_f\.bias", "transformer/ln_f/bias", same),
        left_out=(r"lm_head\.weight",),
    )


def big_vision_vit():
    at = r"vit\.layers\.(\d+)\."
    node = r"Transformer/encoderblock_\1"
    attention = f"{node}/MultiHeadDotProductAttention_1"
    return Conversion(
        "vit",
        (r"vit\.embeddings\.cls_token", "cls", same),
        (r"vit\.embeddings\.position_embeddings", "Transformer/posembed_input/pos_embedding", same),
        (
            r"vit\.embeddings\.patch_embeddings\.projection\.weight",
            "embedding/kernel",
            image_kernel,
        ),
        (r"vit\.embeddings\.patch_embeddings\.projection\.bias", "embedding/bias", same),
        *(
            (at + rf"attention\.{a}_proj\.{leaf}", f"{attention}/{b}/{new}", change)
            for a, b in (("q", "query"), ("k", "key"), ("v", "value"))
            for leaf, new, change in (
                ("weight", "kernel", heads_out(16)),
                ("bias", "bias", heads(16)),
            )
        ),
        (at + r"attention\.o_proj\.weight", f"{attention}/out/kernel", heads_in(16)),
        (at + r"attention\.o_proj\.bias", f"{attention}/out/bias", same),
        *(
            (at + rf"{a}\.{leaf}", f"{node}/{b}/{new}", same)
            for a, b in (("layernorm_before", "LayerNorm_0"), ("layernorm_after", "LayerNorm_2"))
            for leaf, new in (("weight", "scale"), ("bias", "bias"))
        ),
        *(
            (at + rf"mlp\.{a}\.{leaf}", f"{node}/MlpBlock_3/{b}/{new}", change)
            for a, b in (("fc1", "Dense_0"), ("fc2", "Dense_1"))
            for leaf, new, change in (("weight", "kernel", t), ("bias", "bias", same))
        ),
        (r"vit\.layernorm\.weight", "Transformer/encoder_norm/scale", same),
        (r"vit\.layernorm\.bias", "Transformer/encoder_norm/bias", same),
        (r"classifier\.weight", "head/kernel", t),
        (r"classifier\.bias", "head/bias", same),
    )


def t5x():
    rules = []
    for side, first, second in (("encoder", 1, None), ("decoder", 2, 1)):
        at = rf"{side}\.block\.(\d+)\.layer\."
        node = rf"target/{side}/layers_\1"
        own = "attention" if side == "encoder" else "self_attention"
        norm = "pre_attention_layer_norm" if side == "encoder" else "pre_self_attention_layer_norm"
        cross = (
            []
            if second is None
            else [
                (
                    second,
                    "EncDecAttention",
                    "encoder_decoder_attention",
                    "pre_cross_attention_layer_norm",
                )
            ]
        )
        for number, theirs, ours, its_norm in [(0, "SelfAttention", own, norm), *cross]:
            for a, b in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out")):
                rules.append(
                    (at + rf"{number}\.{theirs}\.{a}\.weight", f"{node}/{ours}/{b}/kernel", t)
                )
            rules.append((at + rf"{number}\.layer_norm\.weight", f"{node}/{its_norm}/scale", same))
        for a, b in (("wi", "wi"), ("wo", "wo")):
            rules.append(
                (at + rf"{first}\.DenseReluDense\.{a}\.weight", f"{node}/mlp/{b}/kernel", t)
            )
        rules.append(
            (at + rf"{first}\.layer_norm\.weight", f"{node}/pre_mlp_layer_norm/scale", same)
        )
        rules.append(
            (
                rf"{side}\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight",
                f"target/{side}/relpos_bias/rel_embedding",
                t,
            )
        )
        rules.append(
            (rf"{side}\.final_layer_norm\.weight", f"target/{side}/{side}_norm/scale", same)
        )
    rules.append((r"shared\.weight", "target/token_embedder/embedding", same))
    return Conversion(
        "t5", *rules, left_out=(r"(en|de)coder\.embed_tokens\.weight", r"lm_head\.weight")
    )


def conversions():
    """All of them, by name."""
    found = {f"{model}-flax": flax_llama(model) for model in LLAMA}
    found |= {f"{model}-maxtext": maxtext_llama(model, scanned=False) for model in LLAMA}
    found |= {f"{model}-maxtext-scanned": maxtext_llama(model, scanned=True) for model in LLAMA}
    return found | {
        "bert-flax": flax_bert(),
        "gpt2-flax": flax_gpt2(),
        "vit-big-vision": big_vision_vit(),
        "t5-t5x": t5x(),
    }
