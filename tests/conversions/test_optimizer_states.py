"""Any optimizer's state between linen and NNX: optax itself trains on with the very same bits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from tests.conversions.routes import PLANS, surgery
from tests.installed import installed

SHAPES = {"body": {"kernel": (4, 6), "bias": (6,)}, "head": {"kernel": (6, 3), "bias": (3,)}}


class Layer(nnx.Module):
    def __init__(self, values):
        for name, value in values.items():
            setattr(self, name, nnx.Param(value))


class Model(nnx.Module):
    def __init__(self, params):
        self.body, self.head = Layer(params["body"]), Layer(params["head"])


def drawn(seed):
    draws = np.random.default_rng(seed)
    return {
        layer: {name: jnp.asarray(draws.normal(size=shape), jnp.float32) for name, shape in leaves.items()}
        for layer, leaves in SHAPES.items()
    }  # fmt: skip


def by_layer(params):
    return jax.tree_util.tree_map_with_path(
        lambda path, _: "head" if "head" in jax.tree_util.keystr(path) else "body", params
    )


def kernels(params):
    return jax.tree_util.tree_map_with_path(
        lambda path, _: "kernel" in jax.tree_util.keystr(path), params
    )


RATE = optax.linear_schedule(1e-2, 1e-3, 10)
CLIP = optax.clip_by_global_norm(1.0)
ADAMW = optax.inject_hyperparams(optax.adamw)
OPTIMIZERS = {
    "what holds another": optax.MultiSteps(
        optax.chain(CLIP, optax.chain(optax.apply_if_finite(optax.adamw(RATE, mask=kernels), 3))),
        2,
    ),
    "masked parts": optax.multi_transform(
        {
            "body": optax.chain(CLIP, ADAMW(learning_rate=RATE)),
            "head": optax.chain(optax.masked(optax.sgd(0.1, momentum=0.9), kernels), CLIP),
        },
        by_layer,
    ),
    "nothing but empty states": optax.sgd(0.1),
}
MORE = {
    "adam": optax.adam(1e-2),
    "chain in chain": optax.chain(CLIP, optax.chain(CLIP, optax.chain(optax.adam(1e-2))), CLIP),
    "a part that is frozen": optax.multi_transform(
        {"body": optax.set_to_zero(), "head": optax.adamw(1e-2)}, by_layer
    ),
    "schedule-free": optax.contrib.schedule_free_adamw(1e-2),
    "muon": optax.contrib.muon(1e-2),
    "adafactor": optax.adafactor(1e-2),
    "lookahead's like": optax.chain(optax.ema(0.9), optax.lion(1e-2)),
    "noise": optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(0)), optax.sgd(0.1)),
    "hyperparams alone": ADAMW(learning_rate=RATE),
    "finite alone": optax.apply_if_finite(optax.adam(1e-2), 3),
}


class Linen:
    @staticmethod
    def fresh(tx):
        return TrainState.create(apply_fn=None, params=drawn(0), tx=tx)

    saved = staticmethod(lambda state: state)

    @staticmethod
    def restored(tx, path):
        return _restored(path, Linen.fresh(tx))

    @staticmethod
    def step(state, gradients):
        return state.apply_gradients(grads=gradients)

    @staticmethod
    def leaves(state):
        return state.params, jax.tree.leaves(state.opt_state), int(state.step)


class Nnx:
    @staticmethod
    def fresh(tx):
        model = Model(drawn(0))
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

    @staticmethod
    def saved(state):
        model, optimizer = state
        return {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}

    @staticmethod
    def restored(tx, path):
        state = Nnx.fresh(tx)
        found = _restored(path, Nnx.saved(state))
        for part, values in zip(state, found.values(), strict=True):
            nnx.update(part, values)
        return state

    @staticmethod
    def step(state, gradients):
        model, optimizer = state
        optimizer.update(model, nnx.state(Model(gradients)))
        return state

    @staticmethod
    def leaves(state):
        model, optimizer = state
        params = {
            layer: {name: getattr(getattr(model, layer), name).get_value() for name in leaves}
            for layer, leaves in SHAPES.items()
        }
        opt_state = jax.tree.leaves(installed(nnx, "as_pure")(optimizer.opt_state))
        return params, opt_state, int(optimizer.step.get_value())


def _restored(path, target):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def trained(program, state, seeds):
    for seed in seeds:
        state = program.step(state, drawn(seed))
    return state


def plain(leaf):
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def same_bits(one, other):
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    assert len(one) == len(other)
    for a, b in zip(map(plain, one), map(plain, other), strict=True):
        assert a.tobytes() == b.tobytes()


PROGRAMS = {"linen": Linen, "nnx": Nnx}
PLANS_THERE = {"linen": "linen-to-nnx.yaml", "nnx": "nnx-to-linen-like.yaml"}


@pytest.mark.check_all
def test_every_state_goes_on_bit_for_bit(tmp_path):
    for name, tx in {**OPTIMIZERS, **MORE}.items():
        goes_on(tmp_path / name, tx)


def goes_on(folder, tx):
    """Of a run of three steps, what each program saved goes on in the other as it does in its own."""
    states = {name: trained(one, one.fresh(tx), (1, 2, 3)) for name, one in PROGRAMS.items()}
    with ocp.StandardCheckpointer() as checkpointer:
        for name, program in PROGRAMS.items():
            checkpointer.save(folder / name, program.saved(states[name]))
        checkpointer.save(folder / "fresh", Linen.fresh(tx))
    for name, other in (("linen", "nnx"), ("nnx", "linen")):
        there = folder / f"from {name}"
        like = ["--set", f"like={folder / 'fresh'}"] if name == "nnx" else []
        text, code = surgery("apply", folder / name, there, PLANS / PLANS_THERE[name], *like)
        assert code == 0, text
        arrived = PROGRAMS[other].restored(tx, there)
        expected = trained(PROGRAMS[name], states[name], (4, 5))
        found = trained(PROGRAMS[other], arrived, (4, 5))
        same_bits(PROGRAMS[other].leaves(found), PROGRAMS[name].leaves(expected))


SEARCHES = {
    "zoom": optax.lbfgs(memory_size=2),
    "backtracking": optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(5)),
    "under a name": optax.named_chain(
        ("sgd", optax.sgd(1.0, momentum=0.9)),
        ("search", optax.scale_by_backtracking_linesearch(5, store_grad=True)),
    ),
    "within others": optax.multi_transform(
        {"body": optax.masked(optax.lbfgs(memory_size=2), kernels), "head": optax.adam(1e-2)},
        by_layer,
    ),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_the_value_that_a_line_search_keeps_is_a_variable_as_well(tmp_path, search):
    """It is called as NNX calls what stands in a variable."""
    tx = SEARCHES[search]
    draws = np.random.default_rng(5)
    state = Linen.fresh(tx)
    opt_state = jax.tree.map(
        lambda a: (a + jnp.asarray(draws.integers(1, 9, a.shape))).astype(a.dtype), state.opt_state
    )
    state = state.replace(opt_state=opt_state)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "linen", state)
    text, code = surgery("apply", tmp_path / "linen", tmp_path / "nnx", PLANS / "linen-to-nnx.yaml")
    assert code == 0, text
    arrived = Nnx.restored(tx, tmp_path / "nnx")
    same_bits(Nnx.leaves(arrived), Linen.leaves(state))
    like = ["--set", f"like={tmp_path / 'linen'}"]
    plan = PLANS / "nnx-to-linen-like.yaml"
    text, code = surgery("apply", tmp_path / "nnx", tmp_path / "back", plan, *like)
    assert code == 0, text
    same_bits(Linen.leaves(Linen.restored(tx, tmp_path / "back")), Linen.leaves(state))


def test_another_optimizer_is_named_before_anything_is_written(tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "nnx", Nnx.saved(Nnx.fresh(optax.adam(1e-2))))
        checkpointer.save(tmp_path / "fresh", Linen.fresh(optax.sgd(1e-2, momentum=0.9)))
    plan = PLANS / "nnx-to-linen-like.yaml"
    text, code = surgery("plan", tmp_path / "nnx", plan, "--set", f"like={tmp_path / 'fresh'}")
    assert code == 2
    assert "only here: 'opt_state/0/count', 'opt_state/0/mu" in text
    assert "opt_state/0/trace/body/kernel" in text
