"""The page on writing a conversion: its plan, as it stands there, gives the logits of transformers."""

import re
import shutil

import flax.linen as nn
import jax
import numpy as np
import orbax.checkpoint as ocp

from tests.conversions.linen_models import Mlp, Norm, dense
from tests.conversions.parts import FIXTURES, Sizes, attended, read, turned
from tests.conversions.routes import PLANS, surgery

PAGE = PLANS.parent / "docs" / "conversions.md"
SIZES = Sizes.of("qwen2")


class Attention(nn.Module):
    """Of Qwen2: with biases, and rotary embeddings of halves."""

    @nn.compact
    def __call__(self, x):
        heads = {"q": SIZES.heads, "k": SIZES.kv_heads, "v": SIZES.kv_heads}
        q, k, v = (
            nn.DenseGeneral((count, SIZES.head_dim), name=name)(x) for name, count in heads.items()
        )
        q, k = (turned(part, neighbours=False) for part in (q, k))
        found = attended(q, k, v, SIZES.head_dim**-0.5)
        return dense(SIZES.embed, "out", axis=(-2, -1))(found)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + Attention(name="attention")(Norm(SIZES, name="attention_norm")(x))
        return x + Mlp(SIZES, name="mlp")(Norm(SIZES, name="mlp_norm")(x))


class Qwen(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(SIZES.vocab, SIZES.embed, name="embed")(tokens)
        for n in range(SIZES.layers):
            x = Layer(name=f"layers_{n}")(x)
        return dense(SIZES.vocab, "head")(Norm(SIZES, name="norm")(x))


def test_what_the_page_writes_computes_what_transformers_does(tmp_path, monkeypatch):
    shutil.copytree(FIXTURES / "qwen2", tmp_path / "qwen2")
    monkeypatch.chdir(tmp_path)
    for language, text in re.findall(
        r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        if language == "sh":
            for line in text.splitlines():
                said, code = surgery(*line.split()[1:])
                assert code == 0, said
        else:
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    tokens, logits = read("qwen2")
    target = jax.eval_shape(Qwen().init, jax.random.key(0), tokens)
    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore(tmp_path / "NEW", target)
    assert abs(jax.jit(Qwen().apply)(params, tokens) - np.asarray(logits)).max() < 1e-4
    with ocp.StandardCheckpointer() as checkpointer:
        fused = checkpointer.restore(tmp_path / "FUSED")["params"]["layers_1"]
    parted, half = params["params"]["layers_1"], SIZES.head_dim // 2
    neighbours = np.arange(SIZES.head_dim).reshape(2, half).T.reshape(-1)
    for name, axis in (("kernel", 1), ("bias", 0)):
        q, k, v = (np.asarray(parted["attention"][part][name]) for part in "qkv")
        wanted = np.concatenate([q[..., neighbours], k[..., neighbours], v], axis)
        np.testing.assert_array_equal(fused["attention"]["qkv"][name], wanted)
    both = [np.asarray(parted["mlp"][part]["kernel"]) for part in ("gate", "up")]
    np.testing.assert_array_equal(fused["mlp"]["gate_up"]["kernel"], np.stack(both, 1))
