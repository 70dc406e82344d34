"""A training state between linen and NNX: the other program restores it, and training goes on as it would have."""

from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from tests.conversions.routes import PLANS, applied, surgery

WIDTH, HEADS, LETTERS, LAYERS = 8, 2, 11, 2
TEXTS = jax.random.randint(jax.random.key(3), (4, 2, 6), 0, LETTERS)
TX = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.linear_schedule(1e-2, 1e-3, 100), eps=1e-4),
)
"""A large `eps`: where a gradient is 0 but for rounding, the moments of two programs are not alike."""


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(HEADS, name="attention")(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(2 * WIDTH)(x)))


class LinenModel(nn.Module):
    @nn.compact
    def __call__(self, text, is_training):
        x = nn.Embed(LETTERS, WIDTH)(text)
        for _ in range(LAYERS):
            x = LinenBlock()(x)
        x = nn.BatchNorm(use_running_average=not is_training, momentum=0.9)(x)
        return nn.Dense(LETTERS)(x)


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.0, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.dropout(self.down(nnx.gelu(self.up(x))))


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(LETTERS, WIDTH, rngs=rngs)
        self.blocks = nnx.List(NnxBlock(rngs) for _ in range(LAYERS))
        self.norm = nnx.BatchNorm(WIDTH, momentum=0.9, rngs=rngs)
        self.head = nnx.Linear(WIDTH, LETTERS, rngs=rngs)

    def __call__(self, text, is_training):
        x = self.embed(text)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x, use_running_average=not is_training))


NAMES = {
    "Embed_0": "embed",
    "BatchNorm_0": "norm",
    "Dense_0": "head",
    **{
        f"LinenBlock_{{0..1}}/{linen}": f"blocks/{{0..1}}/{name}"
        for linen, name in {
            "LayerNorm_0": "norm",
            "Dense_0": "down",  # the outer one is made first
            "Dense_1": "up",
            "attention": "attention",
        }.items()
    },
}
"""The modules of both: nobody but the user knows these."""


class State(TrainState):
    batch_stats: Any = None


def missed(logits, text):
    following = jnp.roll(text, 1, axis=-1)
    return optax.softmax_cross_entropy_with_integer_labels(logits, following).mean()


FAST = {"xla_backend_optimization_level": 0}
"""Programs that run a few times: compiling them is what costs."""


class Linen:
    """The linen program: what it saves, and a step of its training."""

    @staticmethod
    @cache
    def target():
        def fresh():
            model = LinenModel()
            variables = model.init(jax.random.key(0), TEXTS[0], True)
            return State.create(apply_fn=model.apply, tx=TX, **variables)

        return jax.eval_shape(fresh)

    @staticmethod
    @partial(jax.jit, compiler_options=FAST)
    def step(state, text):
        def loss_of(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, updated = state.apply_fn(variables, text, True, mutable=["batch_stats"])
            return missed(logits, text), updated

        gradients, updated = jax.grad(loss_of, has_aux=True)(state.params)
        return state.apply_gradients(grads=gradients, **updated)

    @staticmethod
    def weights(state):
        """All params and running means, by the names of NNX."""
        found = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path((state.params, state.batch_stats)):
            text = "/".join(str(key.key) for key in path[1:])
            for old, new in NAMES.items():
                for n in map(str, range(LAYERS)):
                    place = old.replace("{0..1}", n) + "/"
                    if text.startswith(place):
                        found[text.replace(place, new.replace("{0..1}", n) + "/")] = leaf
        return found


class Nnx:
    """The NNX program, likewise."""

    @staticmethod
    @cache
    def structure():
        def fresh():
            model = NnxModel(nnx.Rngs(0))
            return model, nnx.Optimizer(model, TX, wrt=nnx.Param)

        return [nnx.split(part) for part in nnx.eval_shape(fresh)]

    @staticmethod
    def target():
        (_, model), (_, optimizer) = Nnx.structure()
        return {"model": model, "optimizer": optimizer}

    @staticmethod
    @partial(jax.jit, compiler_options=FAST)
    def step(state, text):
        structures = (structure for structure, _ in Nnx.structure())
        model, optimizer = map(nnx.merge, structures, state.values())
        gradients = nnx.grad(lambda model: missed(model(text, True), text))(model)
        optimizer.update(model, gradients)
        return {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}

    @staticmethod
    def weights(state):
        kinds = nnx.Any(nnx.Param, nnx.BatchStat)
        leaves = nnx.to_flat_state(nnx.filter_state(state["model"], kinds))
        return {"/".join(map(str, path)): leaf.get_value() for path, leaf in leaves}


def drawn(target):
    """A state as it may stand after some steps."""
    draws = np.random.default_rng(0)

    def leaf(spec):
        if jax.dtypes.issubdtype(spec.dtype, jax.dtypes.prng_key):
            return jax.random.key(7)
        if spec.dtype != np.float32:
            return jnp.asarray(3, spec.dtype)
        return jnp.asarray(draws.uniform(0.1, 0.5, spec.shape), jnp.float32)

    return jax.tree.map(leaf, target)


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)


def restored(program, path):
    """What the program's own restore gives it."""
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, program.target())


def same(a, b):
    assert a.keys() == b.keys()
    for name, leaf in a.items():
        np.testing.assert_allclose(leaf, b[name], rtol=0, atol=1e-6, err_msg=name)


def written(path, text):
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    """States of both programs on disk, and the plans of a user who has these models."""
    folder = tmp_path_factory.mktemp("linen-nnx")
    for program, name in ((Linen, "linen"), (Nnx, "nnx")):
        save(folder / name, drawn(program.target()))
    moves = {f"params/{old}": f"params/{new}" for old, new in NAMES.items()}
    stats = "batch_stats/BatchNorm_0: batch_stats/norm"
    pairs = "".join(f"      {old}: {new}\n" for old, new in moves.items())
    written(folder / "names.yaml", f"edits:\n  - op: rename\n    moves:\n{pairs}      {stats}\n")
    back = {new: old for old, new in moves.items()}
    pairs = "".join(f"      {old}: {new}\n" for old, new in back.items())
    stats = "batch_stats/norm: batch_stats/BatchNorm_0"
    written(folder / "back.yaml", f"edits:\n  - op: rename\n    moves:\n{pairs}      {stats}\n")
    shipped = (PLANS / "nnx-to-linen.yaml").read_text()
    inner = "  # - {op: to-list, at: opt_state/1, length: 3}\n"
    assert inner in shipped
    written(folder / "nnx-to-linen.yaml", shipped.replace(inner, inner.replace("# ", "")))
    return folder


def to_nnx(kitchen, source, folder):
    named = applied(source, folder / "named", kitchen / "names.yaml")
    return applied(named, folder / "nnx", "linen-to-nnx.yaml")


def to_linen(kitchen, source, folder):
    linen = applied(source, folder / "linen", kitchen / "nnx-to-linen.yaml", chain=2)
    return applied(linen, folder / "renamed", kitchen / "back.yaml")


def whole(kitchen, nnx_state):
    """With the keys of Dropout, which linen does not save."""
    keys = ("model", "--with", kitchen / "nnx", "--both", "ours")
    destination = nnx_state.with_name("whole")
    text, code = surgery("merge", nnx_state, destination, *keys)
    assert code == 0, text
    return destination


def gone_on(linen, other):
    for text in TEXTS:
        linen, other = Linen.step(linen, text), Nnx.step(other, text)
    assert int(linen.step) == int(other["optimizer"].step.get_value()) == 3 + len(TEXTS)
    same(Linen.weights(linen), Nnx.weights(other))


def test_a_linen_run_goes_on_in_nnx(kitchen, tmp_path):
    there = to_nnx(kitchen, kitchen / "linen", tmp_path)
    with pytest.raises(ValueError, match="rngs"):
        restored(Nnx, there)
    gone_on(restored(Linen, kitchen / "linen"), restored(Nnx, whole(kitchen, there)))


def test_an_nnx_run_goes_on_in_linen(kitchen, tmp_path):
    there = to_linen(kitchen, kitchen / "nnx", tmp_path)
    gone_on(restored(Linen, there), restored(Nnx, kitchen / "nnx"))


def test_there_and_back_is_where_it_was_bit_for_bit(kitchen, tmp_path):
    back = to_linen(kitchen, to_nnx(kitchen, kitchen / "linen", tmp_path), tmp_path)
    text, code = surgery("diff", kitchen / "linen", back)
    assert code == 0, text
    again = to_nnx(kitchen, to_linen(kitchen, kitchen / "nnx", tmp_path / "a"), tmp_path / "b")
    text, code = surgery("diff", kitchen / "nnx", whole(kitchen, again))
    assert code == 0, text


def test_what_neither_framework_has_is_refused(tmp_path):
    params = {"Dense_0": {"kernel": jnp.ones((2, 2))}}
    save(tmp_path / "more", {"params": params, "ema": params})
    text, code = surgery("plan", tmp_path / "more", PLANS / "linen-to-nnx.yaml")
    assert code == 2, text
    assert "there stand 'ema/" in text
