"""`--like-init` where the function returns NNX optimizers, bare states, several values, or the parts of items."""

from __future__ import annotations

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

SCRIPT = '''
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from flax.training.train_state import TrainState


class Model(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.last = nnx.Linear(3, 2, rngs=rngs)


def labels(params):
    return nnx.map_state(lambda path, _: "adam" if path[0] == "first" else "sgd", params)


def matrices(params):
    return jax.tree.map(lambda x: x.ndim > 1, params)


RECIPES = {
    "clipped": lambda: optax.chain(optax.clip(1.0), optax.adamw(1e-3)),
    "averaged": lambda: optax.chain(optax.adam(1e-3), optax.ema(0.9), optax.trace(0.5)),
    "masked": lambda: optax.chain(optax.clip(1.0), optax.masked(optax.adam(1e-3), matrices)),
    "factored": lambda: optax.adafactor(1e-3, min_dim_size_to_factor=2, momentum=0.9),
    "labelled": lambda: optax.multi_transform(
        {"adam": optax.adam(1e-3), "sgd": optax.chain(optax.clip(1.0), optax.sgd(0.1, 0.9))}, labels
    ),
}


def pair(recipe="clipped"):
    model = Model()
    return model, nnx.Optimizer(model, RECIPES[recipe](), wrt=nnx.Param)


def as_dict(recipe="clipped"):
    model, optimizer = pair(recipe)
    return {"model": model, "optimizer": optimizer}


def optimizer_alone():
    return pair()[1]


def states():
    return {key: nnx.state(module) for key, module in as_dict().items()}


class Trainer(nnx.Module):
    def __init__(self):
        self.model, self.optimizer = pair()


@flax.struct.dataclass
class Bag:
    model: Any
    optimizer: Any


def bag():
    return Bag(*pair())


def both_in_one():
    return nnx.ModelAndOptimizer(Model(), RECIPES["clipped"](), wrt=nnx.Param)


def params():
    return {"a": {"w": jnp.ones((4, 3))}, "b": {"w": jnp.ones((3, 2))}}


def train_state():
    return TrainState.create(apply_fn=None, params=params(), tx=RECIPES["clipped"]())


def bare(**more):
    tx = RECIPES["clipped"]()
    return {"params": params(), "opt_state": tx.init(params()), **more}


def with_tx():
    return bare(tx=RECIPES["clipped"]())


def with_a_jax_number():
    return bare(tx=optax.chain(optax.clip(1.0), optax.adamw(jnp.asarray(1e-3) * 2)))


def two_players():
    """A generator and a critic, whose states only their transformations tell apart."""
    tx = {"of_g": RECIPES["clipped"](), "of_d": optax.chain(optax.scale_by_sign(), optax.sgd(0.1, 0.9))}
    first, second = params()["a"], params()["b"]
    return {
        "g": first,
        "d": second,
        "opt_state": {"kept": jnp.zeros(())},
        "opt_g": tx["of_g"].init(first),
        "opt_d": tx["of_d"].init(second),
        **tx,
    }


def renamed_state():
    """The names of the step's items are its own."""
    state = train_state()
    return {"weights": state.params, "moments": state.opt_state}
'''


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The module of the script, and what names one of its functions."""
    from surgery_cli.script.user_code import load_object

    file = tmp_path_factory.mktemp("script") / "net.py"
    file.write_text(SCRIPT)

    def call(name):
        return load_object(f"{file}:{name}").call()

    return call, lambda name: f"{file}:{name}"


KERNEL = "model/first/kernel"


def trained_pair(call, name, factor=1.0):
    """Model and optimizer after some steps of its state, had the first kernel been ``factor`` times as large.

    Gradients do not depend on the params, which stay as they are, so that their factor does.
    """
    model, optimizer = call(name)
    model.first.kernel[...] = model.first.kernel[...] * factor
    held = jax.tree.map(lambda x: x, nnx.state(model, nnx.Param))
    random = np.random.default_rng(0)

    def gradient(path, leaf):
        text = jax.tree_util.keystr(path)
        c = factor if "first" in text and "kernel" in text else 1.0
        return (random.normal(0, 1e-2, leaf.shape) / c).astype("f4")

    for _ in range(4):
        optimizer.update(model, jax.tree_util.tree_map_with_path(gradient, held))
        nnx.update(model, held)
    return model, optimizer


def states_of(model, optimizer):
    return {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def save_items(path, **items):
    with ocp.CheckpointManager(path) as manager:
        saving = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(7, args=ocp.args.Composite(**saving))
    return path


@pytest.fixture(scope="module")
def nnx_dict(script, tmp_path_factory):
    call, _ = script
    return save(tmp_path_factory.mktemp("nnx") / "dict", states_of(*trained_pair(call, "pair")))


def twins(result):
    assert result.code == 0, result.err
    return result.document["edits"][0]["twins"]


def halved(surgery, source, at, like, *more):
    """The preview of a rescale."""
    return surgery(
        "rescale", source, source.parent / "new", at, "--by", "0.5", "--dry-run", "--json",
        "--like-init", like, *more,
    )  # fmt: skip


# --- what an NNX optimizer shows of its slots ---------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("recipe", ["clipped", "averaged", "masked", "factored", "labelled"])
def test_the_slots_of_an_nnx_optimizer_follow_as_if_the_params_had_been_scaled_all_along(
    surgery, script, tmp_path, recipe
):
    call, named = script
    source = save(tmp_path / "saved", states_of(*trained_pair(call, f"pair({recipe!r})")))
    expected = states_of(*trained_pair(call, f"pair({recipe!r})", -3.0))

    done = surgery(
        "rescale", source, tmp_path / "new", KERNEL, "--by", "-3", "--optimizer", "transform",
        "--like-init", named(f"as_dict({recipe!r})"), "--json",
    )  # fmt: skip

    assert done.code == 0, done.err
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", expected)

    def compare(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(abs(b).max()))

    jax.tree.map(compare, found, expected)


@pytest.mark.parametrize("function", ["as_dict", "Trainer", "bag", "pair"])
def test_an_nnx_optimizer_is_found_in_whatever_holds_it(surgery, script, nnx_dict, function):
    assert twins(halved(surgery, nnx_dict, KERNEL, script[1](function))) == {"transform": 2}


def test_an_optimizer_that_holds_its_model_is_found(surgery, script, tmp_path):
    call, named = script
    source = save(tmp_path / "saved", nnx.state(call("both_in_one")))
    assert twins(halved(surgery, source, KERNEL, named("both_in_one"))) == {"transform": 2}


def test_an_optimizer_alone_agrees_and_says_why_it_has_no_slots(surgery, script, tmp_path):
    call, named = script
    source = save(tmp_path / "saved", nnx.state(call("optimizer_alone")))
    like = ["--like-init", named("optimizer_alone")]
    assert surgery("verify", source, *like).code == 0
    refused = surgery("reset-optimizer", source, tmp_path / "new", *like)
    assert refused.code == 2
    assert "the tree has no such params" in refused.err
    assert "`surgery insert-item CKPT NEW params --with PARAMS`" in refused.err


# --- what holds no optimizer, and what to do about it --------------------------------------------------------


def test_a_state_of_an_nnx_optimizer_is_said_not_to_hold_it(surgery, script, nnx_dict):
    result = halved(surgery, nnx_dict, KERNEL, script[1]("states"))
    assert twins(result) == {"keep": 2}
    (note,) = result.document["notes"]
    assert "return the `nnx.Optimizer` itself" in note
    assert "does not hold the optimizer" in note
    assert "`--optimizer-kind NAME`" in note
    assert "--like-init" not in note


def test_a_refused_transform_does_not_advise_what_was_given(surgery, script, nnx_dict):
    result = halved(surgery, nnx_dict, KERNEL, script[1]("states"), "--optimizer", "transform")
    assert result.code == 2
    fixes = [problem["fix"] for problem in result.document["problems"]]
    assert len(fixes) == 2
    assert all("return the `nnx.Optimizer` itself" in fix for fix in fixes)
    assert not any("--like-init" in fix for fix in fixes)


def test_a_bare_dict_may_bring_its_transformation_along(surgery, script, tmp_path):
    call, named = script
    source = save(tmp_path / "saved", call("bare"))
    without = halved(surgery, source, "params/a", named("bare"))
    assert twins(without) == {"keep": 2}
    (note,) = without.document["notes"]
    assert "`tx` beside the state" in note
    assert twins(halved(surgery, source, "params/a", named("with_tx"))) == {"transform": 2}


@pytest.mark.parametrize(
    ("player", "slot", "factor"),
    [("g", "opt_g/1/0/mu/w", 0.5), ("g", "opt_g/1/0/nu/w", 0.25), ("d", "opt_d/1/0/trace/w", 1.0)],
)
def test_of_two_transformations_each_is_tried_on_the_state_that_it_makes(
    surgery, script, tmp_path, player, slot, factor
):
    call, named = script
    held = {k: v for k, v in call("two_players").items() if not k.startswith("of_")}
    ones = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), held)
    source = save(tmp_path / "saved", ones)
    done = surgery(
        "rescale", source, tmp_path / "new", player, "--by", "2", "--params", player,
        "--like-init", named("two_players"), "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")
    for key in slot.split("/"):
        found = found[int(key) if isinstance(found, list) else key]
    np.testing.assert_array_equal(found, np.full(found.shape, factor, np.float32))


# --- steps of several items -----------------------------------------------------------------------------------


def test_the_parts_of_a_train_state_are_the_items_of_their_names(surgery, script, tmp_path):
    call, named = script
    state = call("train_state")
    run = save_items(tmp_path / "run", params=state.params, opt_state=state.opt_state)
    found = surgery("verify", run, "--like-init", named("train_state"), "--json")
    assert found.code == 0, found.out
    assert found.document["unchecked"] == 0
    (note,) = found.document["notes"]
    assert note.startswith("'step' of what ")
    assert twins(halved(surgery, run, "params/a", named("train_state"))) == {"transform": 2}


def test_a_train_state_that_is_one_item_of_several_is_recognised(surgery, script, tmp_path):
    call, named = script
    state = call("train_state")
    run = save_items(tmp_path / "run", state=state, ema=state.params)
    found = surgery("verify", run, "--like-init", named("train_state"), "--json")
    assert (found.code, found.document["checked"]) == (0, 11)
    assert twins(halved(surgery, run, "state/params/a", named("train_state"))) == {"transform": 2}


def test_several_returned_values_are_the_items_that_have_their_leaves(surgery, script, tmp_path):
    call, named = script
    model, optimizer = call("pair")
    run = save_items(tmp_path / "run", net=nnx.state(model), opt=nnx.state(optimizer))
    found = surgery("verify", run, "--like-init", named("pair"))
    assert found.code == 0, found.out
    assert "'0' of what" in found.out
    assert "is taken for 'net'" in found.out


def test_a_lone_item_is_compared_with_the_one_returned_value_that_has_its_leaves(
    surgery, script, tmp_path
):
    call, named = script
    model, _ = call("pair")
    run = save_items(tmp_path / "run", model=nnx.state(model))
    found = surgery("verify", run, "--like-init", named("pair"))
    assert found.code == 0, found.out
    assert "is taken for the item 'model': most of its leaves are there" in found.out
    assert "'1' of what" in found.out
    assert "is not compared" in found.out


def test_several_values_of_which_none_is_the_item_are_refused(surgery, script, tmp_path):
    call, named = script
    run = save_items(tmp_path / "run", params={"other": call("train_state").params})
    found = surgery("verify", run, "--like-init", named("pair"))
    assert found.code == 2
    said = "with 2 values that a checkpoint could hold, and none of them is the item 'params'"
    assert f"returns a tuple or list {said}" in found.err


def test_items_that_a_function_could_mean_alike_are_not_guessed(surgery, script, tmp_path):
    call, named = script
    state = call("train_state")
    run = save_items(tmp_path / "run", net=state.params, ema=state.params)
    found = surgery("verify", run, "--like-init", named("renamed_state"))
    assert found.code == 2
    assert "does not say which item is which" in found.err


def test_an_item_that_a_dict_names_and_the_step_lacks_is_missing(surgery, script, tmp_path):
    call, named = script
    state = call("train_state")
    run = save_items(tmp_path / "run", params=state.params, ema=state.params)
    found = surgery("verify", run, "--like-init", named("bare"), "--json")
    assert [(row["path"], row["what"]) for row in found.document["findings"]] == [
        ("opt_state", "missing")
    ]


def test_one_item_is_compared_with_its_part_of_a_train_state(surgery, script, tmp_path):
    call, named = script
    state = call("train_state")
    run = save_items(tmp_path / "run", params=state.params, opt_state=state.opt_state)
    found = surgery(
        "verify", run, "--item", "params", "--like-init", named("train_state"), "--json"
    )
    assert (found.code, found.document["checked"]) == (0, 2)
    assert "'step', 'opt_state' of what" in found.document["notes"][0]


def test_a_number_that_only_jax_knows_is_said_to_keep_the_optimizer_from_being_tried(
    surgery, script, tmp_path
):
    call, named = script
    source = save(tmp_path / "saved", call("bare"))
    result = halved(surgery, source, "params/a", named("with_a_jax_number"))
    note = result.document["notes"][0]
    assert "cannot be tried out: it holds a number that the function computed with jax" in note
    assert "make it a Python number" in note


def test_twins_that_a_chosen_item_hides_are_named(surgery, script, tmp_path):
    state = script[0]("train_state")
    run = save_items(tmp_path / "run", params=state.params, opt_state=state.opt_state)
    for edit in (["rescale", "a/w", "--by", "0.5"], ["rename", "a/w", "--to", "a/kernel"]):
        name, at, *fields = edit
        result = surgery(name, run, tmp_path / "new", at, *fields, "--item", "params",
                         "--dry-run", "--json")  # fmt: skip
        (note,) = (note for note in result.document["notes"] if "do not follow" in note)
        assert note.startswith("2 twins in the item 'opt_state' do not follow, as `--item params`")
        assert note.endswith("leave `--item` out, and begin paths with 'params/'")
    slots = ["rescale", run, tmp_path / "new", "1/0/mu/a", "--by", "0.5", "--item", "opt_state"]
    result = surgery(*slots, "--dry-run", "--json")
    assert not any("do not follow" in note for note in result.document["notes"])
    reset = surgery("reset-optimizer", run, tmp_path / "new", "--item", "opt_state")
    assert reset.code == 2
    assert "leave `--item` out" in reset.err
