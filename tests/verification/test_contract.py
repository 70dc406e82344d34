"""The contract check against its judge: Orbax's own restore of the same tree into the same target."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx, struct
from flax.core import FrozenDict
from flax.training.train_state import TrainState

from surgery_cli.script.abstract_tree import abstract_tree
from surgery_cli.script.contract import CASTS, DROPS, EMPTIES, MISTAKES, RAISES, breaches
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from tests.garbage import told_here

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Moments(NamedTuple):
    mu: Any
    nu: Any


class Nothing(NamedTuple):
    """A state without fields, as `optax.EmptyState`."""


def like(shape=(2, 3), dtype="float32"):
    """A target leaf on this machine's first device."""
    kind = jnp.dtype(dtype) if isinstance(dtype, str) else dtype
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(shape, kind, sharding=sharding)


def key_of(impl):
    return like((), jax.random.key(0, impl=impl).dtype)


# saved, target, what is found (effect), and what it is called
AGREEING = {
    "a list for a tuple": ([X, X], (like(), like())),
    "a dict for a NamedTuple": ({"mu": X, "nu": X}, Moments(like(), like())),
    "a NamedTuple for a dict": (Moments(X, X), {"mu": like(), "nu": like()}),
    "numbers as dict keys": ({0: X, 1: X}, {0: like(), 1: like()}),
    "text for numbers as dict keys": ({"0": X, "1": X}, {0: like(), 1: like()}),
    "None for a dict without entries": (None, {}),
    "None for a state without fields": (None, Nothing()),
    "an empty dict for None": ({}, None),
    "an empty list for a tuple": ([], ()),
    "a Python int for an int32 array": (3, like((), "int32")),
    "an int32 array for a Python int": (jnp.int32(3), 0),
    "a Python float for another": (0.5, 0.0),
    "a NumPy array for a jax array": (X, like()),
    "a jax array for a NumPy array": (jnp.asarray(X), np.zeros((2, 3), np.float32)),
    "float64 of NumPy": (X.astype(np.float64), np.zeros((2, 3))),
    "bfloat16": (jnp.asarray(X, "bfloat16"), like((2, 3), "bfloat16")),
    "a string": ("adam", "sgd"),
    "a typed key": (jax.random.key(1), key_of("threefry2x32")),
}
DISAGREEING = {
    "None for a leaf": (None, like(), "empty", EMPTIES),
    "a leaf for None": (X, None, "empty", DROPS),
    "a leaf for an empty dict": (X, {}, "empty", DROPS),
    "None for a subtree": (None, {"c": like()}, "container", RAISES),
    "a subtree for None": ({"c": X}, None, "container", RAISES),
    "a list for a dict with digit keys": ([X, X], {"0": like(), "1": like()}, "container", RAISES),
    "a dict with digit keys for a list": ({"0": X, "1": X}, [like(), like()], "container", RAISES),
    "a NamedTuple for a list": (Moments(X, X), [like(), like()], "container", RAISES),
    "a longer list": ([X, X, X], [like(), like()], "extra", RAISES),
    "a shorter list": ([X], [like(), like()], "missing", RAISES),
    "one leaf more": ({"c": X, "d": X}, {"c": like()}, "extra", RAISES),
    "one leaf less": ({"c": X}, {"c": like(), "d": like()}, "missing", RAISES),
    "one None more": ({"c": X, "d": None}, {"c": like()}, "extra", RAISES),
    "one None less": ({"c": X}, {"c": like(), "d": None}, "missing", RAISES),
    "a narrower float": (X, like((2, 3), "bfloat16"), "dtype", CASTS),
    "a narrow integer": (X, like((2, 3), "int8"), "dtype", CASTS),
    "float64 for float32": (X.astype(np.float64), like(), "dtype", CASTS),
    "a Python float for an int": (3.7, 0, "dtype", CASTS),
    "a Python bool for an int": (True, 0, "dtype", CASTS),
    "another width": (X, like((2, 4)), "shape", RAISES),
    "another rank": (X, like((6,)), "shape", RAISES),
    "one element for a scalar": (np.ones(1, np.float32), like(()), "shape", RAISES),
    "an array for a Python number": (X, 0.0, "shape", RAISES),
    "a key for its bits": (jax.random.key(1), like((2,), "uint32"), "kind", MISTAKES),
    "bits for a key": (jax.random.key_data(jax.random.key(1)), key_of("threefry2x32"), "kind", MISTAKES),
    "a key of another kind": (jax.random.key(1), key_of("rbg"), "kind", MISTAKES),
    "a string for an array": ("adam", like(()), "kind", RAISES),
    "an array for a string": (X, "adam", "kind", RAISES),
    "an array for a complex number of Python": (jnp.complex64(1), 1j, "kind", RAISES),
}  # fmt: skip

NUMPY_SCALARS = (
    "bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "str",
)  # fmt: skip


def saved(path, tree):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return open_checkpoint(str(path)).tree


def restored(path, target):
    with ocp.PyTreeCheckpointer() as checkpointer:
        arguments = ocp.checkpoint_utils.construct_restore_args(target)
        return checkpointer.restore(
            path, args=ocp.args.PyTreeRestore(item=target, restore_args=arguments)
        )


def leaf_text(leaf):
    """Type and values of a leaf: equal texts are equal leaves, except that NumPy and jax arrays look alike."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return f"{leaf.dtype} {jax.random.key_data(leaf)}"
    if hasattr(leaf, "dtype"):
        return f"{leaf.dtype} {np.asarray(leaf).tolist()}"
    return f"{type(leaf).__name__} {leaf}"


def kinds(tree):
    return [
        str(leaf.dtype) if hasattr(leaf, "dtype") else type(leaf).__name__
        for leaf in jax.tree.leaves(tree)
    ]


@pytest.mark.parametrize("name", AGREEING)
def test_where_the_check_agrees_orbax_gives_the_saved_values_in_the_form_asked_for(name, tmp_path):
    tree, target = ({"a": X, "b": side} for side in AGREEING[name])
    target["a"] = like()

    assert breaches(saved(tmp_path / "c", tree), abstract_tree(lambda: target).tree) == []

    back = restored(tmp_path / "c", target)
    assert [leaf_text(leaf).split(" ", 1)[1] for leaf in jax.tree.leaves(back)] == [
        leaf_text(leaf).split(" ", 1)[1] for leaf in jax.tree.leaves(tree)
    ]
    assert kinds(back) == kinds(target)
    assert jax.tree.structure(back) == jax.tree.structure(target)


# Orbax abandons its other reads when one of them raises
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("name", DISAGREEING)
def test_where_the_check_finds_something_orbax_raises_or_silently_does_what_it_says(name, tmp_path):
    stored, wanted, what, effect = DISAGREEING[name]
    tree, target = {"a": X, "b": stored}, {"a": like(), "b": wanted}

    (found,) = breaches(saved(tmp_path / "c", tree), abstract_tree(lambda: target).tree)

    assert (found.what, found.effect) == (what, effect)
    assert found.path[0] == "b"
    if effect == RAISES:
        with told_here(), pytest.raises((ValueError, TypeError, KeyError)):
            restored(tmp_path / "c", target)
        return
    back = restored(tmp_path / "c", target)["b"]
    if effect == CASTS:
        assert kinds(back) == kinds(wanted) != kinds(stored)
    elif effect == MISTAKES:
        assert leaf_text(back) == leaf_text(stored)
        assert kinds(back) != kinds(wanted)
    else:
        assert jax.tree.leaves(back) == []


@pytest.mark.parametrize("dtype", NUMPY_SCALARS)
def test_numpy_scalars_are_found_where_a_restore_refuses_them_as_targets(dtype, tmp_path):
    """Those that are Python numbers or texts as well are taken."""
    value = np.dtype(dtype).type(1)
    stored = value if isinstance(value, str) else np.asarray(value)
    tree, target = {"a": X, "b": stored}, {"a": like(), "b": value}
    found = breaches(saved(tmp_path / "c", tree), abstract_tree(lambda: target).tree)

    try:
        restored(tmp_path / "c", target)
    except ValueError:
        assert [(b.what, b.effect) for b in found] == [("kind", RAISES)]
    else:
        assert found == []


def test_a_partial_restore_skips_what_is_extra_and_keeps_a_concrete_targets_own_values(tmp_path):
    """What the findings `extra` and `missing` advise."""
    saved(tmp_path / "c", {"a": X, "gone": X})
    target = {"a": jnp.zeros((2, 3)), "fresh": jnp.full(4, 7.0)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        back = checkpointer.restore(
            tmp_path / "c", args=ocp.args.PyTreeRestore(item=target, partial_restore=True)
        )
    np.testing.assert_array_equal(back["a"], X)
    np.testing.assert_array_equal(back["fresh"], [7.0] * 4)
    assert set(back) == {"a", "fresh"}


# --- what a function's pytree is on disk -----------------------------------------------------------------


def params():
    return {"a": {"w": jnp.ones((3, 4)), "b": jnp.ones(4)}, "c": {"w": jnp.ones((4, 2))}}


def train_state(tx):
    return lambda: TrainState.create(apply_fn=None, params=params(), tx=tx)


class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)


def net_and_optimizer():
    net = Net()
    return {"model": net, "optimizer": nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)}


def random_streams():
    return {"net": Net(), "rngs": nnx.Rngs(0, dropout=1)}


class Average(struct.PyTreeNode):
    """Arrays of which methods are called as those of an optax transformation."""

    values: Any

    def init(self): ...

    def update(self): ...


def states(modules):
    return jax.tree.map(nnx.state, modules, is_leaf=lambda x: isinstance(x, nnx.Pytree))


def halves(_):
    return {"a": "train", "c": "frozen"}


PYTREES = {
    "adamw": (train_state(optax.adamw(0.1)), lambda x: x),
    "a schedule, clipping and a mask": (
        train_state(
            optax.chain(
                optax.clip(1.0),
                optax.adamw(optax.linear_schedule(0.1, 0.0, 9), mask={"a": True, "c": False}),
            )
        ),
        lambda x: x,
    ),
    "multi_transform": (
        train_state(
            optax.multi_transform({"train": optax.adam(0.1), "frozen": optax.set_to_zero()}, halves)
        ),
        lambda x: x,
    ),
    "inject_hyperparams": (
        train_state(optax.inject_hyperparams(optax.adam)(learning_rate=0.1)),
        lambda x: x,
    ),
    "a FrozenDict": (lambda: {"params": FrozenDict(params())}, lambda x: x),
    "NNX modules": (net_and_optimizer, states),
    "states of NNX modules": (lambda: states(net_and_optimizer()), lambda x: x),
    "NNX modules saved as pure dicts": (
        net_and_optimizer,
        lambda x: jax.tree.map(
            nnx.to_pure_dict, states(x), is_leaf=lambda y: isinstance(y, nnx.State)
        ),
    ),
    "states of random streams": (random_streams, states),
    "a random stream, saved as it is": (lambda: {"rngs": nnx.Rngs(0)}, lambda x: x),
    "methods called as those of a transformation": (
        lambda: {"average": Average({"w": jnp.ones(3)})},
        lambda x: x,
    ),
    "an NNX optimizer, saved as it is": (
        lambda: {
            "o": nnx.Optimizer(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), optax.adam(0.1), wrt=nnx.Param)
        },
        lambda x: x,
    ),
    "numbers, text and keys": (
        lambda: {"n": 3, "x": 0.5, "name": "adam", "key": jax.random.key(0), "odd": np.zeros(2)},
        lambda x: x,
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PYTREES)
def test_a_function_agrees_with_what_orbax_saved_of_its_result(name, tmp_path):
    function, as_saved = PYTREES[name]
    stored = saved(tmp_path / "c", as_saved(function()))
    abstract = abstract_tree(function)
    assert breaches(stored, abstract.saved_as(stored)) == []
    assert set(abstract.saved_as(stored)) == set(stored)


def test_no_array_is_made_while_the_function_is_looked_at():
    def enormous():
        return {"w": jnp.zeros((1 << 20, 1 << 20)), "k": jax.random.key(0)}

    tree = abstract_tree(enormous).tree
    assert tree[LeafPath(("w",))].shape == (1 << 20, 1 << 20)
    assert tree[LeafPath(("k",))].kind is LeafKind.KEY


def test_the_classes_of_optimizer_states_are_known():
    classes = abstract_tree(train_state(optax.chain(optax.clip(1.0), optax.lion(0.1)))).classes
    assert classes[LeafPath(("opt_state", 1, 0))].endswith("ScaleByLionState")
    assert classes[LeafPath(("opt_state", 0))].endswith("EmptyState")


# --- one finding for a whole subtree -----------------------------------------------------------------------


def test_leaves_that_differ_alike_are_one_finding_at_their_topmost_node(tmp_path):
    stored = saved(tmp_path / "c", {"params": params(), "step": 1, "table": np.ones(3, np.int32)})

    def half():
        return {
            "params": jax.tree.map(lambda x: x.astype("bfloat16"), params()),
            "step": 1,
            "table": jnp.zeros(3, "int16"),
        }

    found = breaches(stored, abstract_tree(half).tree)
    assert [(str(b.path), b.what, len(b.leaves)) for b in found] == [
        ("params", "dtype", 3),
        ("table", "dtype", 1),
    ]


def test_a_node_of_which_one_leaf_agrees_is_not_named_as_a_whole(tmp_path):
    stored = saved(tmp_path / "c", {"params": params()})

    def mixed():
        tree = params()
        tree["a"] = jax.tree.map(lambda x: x.astype("float16"), tree["a"])
        return {"params": tree}

    (found,) = breaches(stored, abstract_tree(mixed).tree)
    assert (str(found.path), len(found.leaves)) == ("params/a", 2)


def test_a_missing_subtree_is_one_finding(tmp_path):
    stored = saved(tmp_path / "c", {"params": params()})
    (found,) = breaches(stored, abstract_tree(lambda: {"params": params(), "ema": params()}).tree)
    assert (str(found.path), found.what, len(found.leaves)) == ("ema", "missing", 3)
