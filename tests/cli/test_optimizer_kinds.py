"""A chain whose first state left no trace: what is said of its slots, and what settles them; states of real optax."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.follow.adam_steps import step_under_old_moments
from surgery_cli.optimizer.follow.decays import Decays
from surgery_cli.settings.values import kinds_of

PARAMS = {
    "body": {"kernel": np.full((4, 3), 0.5, np.float32)},
    "head": {"kernel": np.full((3, 2), -0.25, np.float32)},
}
HEAD = "params/head/kernel"


def recipe():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))


def after_training(transformation, factor=1.0, steps=5):
    """The state after a few steps below the clip, had ``head`` been ``factor`` times as large all along."""
    random = np.random.default_rng(0)
    params = {**PARAMS, "head": {"kernel": PARAMS["head"]["kernel"] * np.float32(factor)}}
    state = transformation.init(params)
    for _ in range(steps):
        gradients = jax.tree.map(lambda p: random.normal(0, 1e-2, p.shape).astype("f4"), PARAMS)
        gradients["head"]["kernel"] /= np.float32(factor)
        _, state = transformation.update(gradients, state, params)
    return {"params": params, "opt_state": state}


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def restored(path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(tmp_path_factory.mktemp("chain") / "saved", after_training(recipe()))


def assert_follows(path, factor):
    expected = after_training(recipe(), factor)["opt_state"][1][0]
    found = restored(path)["opt_state"][1][0]
    for slot in ("mu", "nu"):
        for layer in PARAMS:
            np.testing.assert_allclose(
                found[slot][layer]["kernel"], getattr(expected, slot)[layer]["kernel"], rtol=1e-5
            )


@pytest.mark.parametrize("kind", ["adamw", "opt_state/1=adamw", "opt_state/1/0=adamw"])
def test_naming_the_kind_on_the_command_makes_the_moments_behind_a_clip_follow(
    surgery, saved, tmp_path, kind
):
    result = surgery(
        "rescale", saved, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", kind, "--json"
    )

    assert result.code == 0
    assert result.document["edits"][0]["twins"] == {"transform": 2}
    assert not [note for note in result.document["notes"] if "kept" in note]
    assert_follows(tmp_path / "new", 3)


def test_naming_the_kind_in_a_plan_makes_the_moments_behind_a_clip_follow(surgery, saved, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"optimizer_kind: adamw\nedits:\n  - {{op: rescale, at: {HEAD}, by: 0.25, optimizer: transform}}\n"
    )

    assert surgery("apply", saved, tmp_path / "new", plan, "--quiet").code == 0

    assert_follows(tmp_path / "new", 0.25)


def test_the_kind_of_the_command_stands_above_the_plans_and_the_deepest_node_has_the_say(
    surgery, saved, tmp_path
):
    plan = tmp_path / "plan.yaml"
    edits = f"edits:\n  - {{op: rescale, at: {HEAD}, by: 3}}\n"
    plan.write_text(f"optimizer_kind: adamax\n{edits}")
    said = surgery("plan", saved, plan, "--optimizer-kind", "opt_state/1=adamw", "--json").document
    plan.write_text(f"optimizer_kind: {{opt_state: adamax, opt_state/1: adamw}}\n{edits}")
    mapped = surgery("plan", saved, plan, "--json").document
    command = surgery(
        "rescale", saved, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", "adamw",
        "--dry-run", "--json",
    ).document  # fmt: skip

    assert said["draft"] == mapped["draft"] == command["draft"]
    assert command["edits"][0]["twins"] == {"transform": 2}
    plan.write_text(f"optimizer_kind: adamax\n{edits}")
    alone = surgery("plan", saved, plan, "--json").document
    assert alone["draft"] != command["draft"]


def test_a_kind_that_is_none_is_refused_on_the_command_with_the_nearest_name(
    surgery, saved, tmp_path
):
    result = surgery(
        "rescale", saved, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", "adamww"
    )

    assert result.code == 2
    assert "did you mean `adamw`" in result.err
    assert not (tmp_path / "new").exists()


def test_a_factory_without_slots_is_refused_without_a_guess(surgery, saved, tmp_path):
    result = surgery(
        "rescale", saved, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", "clip"
    )

    assert result.code == 2
    assert "it keeps no slots" in result.err
    assert "did you mean" not in result.err


@pytest.mark.parametrize(
    "texts", [["=adamw"], ["opt_state="], [""], ["sgd", "adamw"], ["a=x", "a=y"]]
)
def test_kinds_that_say_nothing_or_two_things_are_refused(texts):
    with pytest.raises(PlanError, match="--optimizer-kind"):
        kinds_of(texts)


def at_count(optimizer, count, b1=0.9, b2=0.999):
    """A state of Adam behind the clip after ``count`` gradients of 1, and the params."""
    first, second = (
        jax.tree.map(lambda p, b=b: np.full_like(p, 1 - b**count), PARAMS) for b in (b1, b2)
    )
    state = optimizer.init(PARAMS)
    moments = state[1][0]._replace(count=np.int32(count), mu=first, nu=second)
    return {"params": PARAMS, "opt_state": (state[0], (moments, *state[1][1:]))}


def coming_steps(by, count, b1=0.9, b2=0.999):
    """The steps that Adam takes with such moments once params times ``by`` have their gradients, in usual steps."""
    optimizer = optax.scale_by_adam(b1=b1, b2=b2, eps=0.0)
    one = np.ones(1, np.float32)
    state = optimizer.init(one)
    state = state._replace(
        count=np.int32(count), mu=one * (1 - b1**count), nu=one * (1 - b2**count)
    )
    steps = []
    for _ in range(100):
        update, state = optimizer.update(one / np.float32(by), state)
        steps.append(abs(float(update[0])))
    return steps


@pytest.mark.parametrize("count", [5, 12, 5000])
@pytest.mark.parametrize("by", [0.1, -0.25, -1.0])
def test_slots_that_are_kept_behind_a_clip_are_announced_with_why_and_what_comes_of_it(
    surgery, tmp_path, by, count
):
    source = save(tmp_path / "saved", at_count(recipe(), count))

    result = surgery(
        "rescale", source, tmp_path / "new", HEAD, "--by", str(by), "--dry-run", "--json"
    )

    (note,) = result.document["notes"]
    assert note.startswith("2 slots of 'opt_state/1/0' (mu, nu) are kept as they were: ")
    assert "what stands before it in the chain (clipping?" in note
    steps = coming_steps(by, count)
    largest = max(steps)
    coming = f"with 'opt_state/1/0/count' at {count:,}, the next steps there are "
    coming += f"up to {largest:.1f} times as" if largest > 1.05 else "about as"
    assert f"{coming} large as usual" in note
    assert largest <= 1.05 or f"(step {steps.index(largest) + 1}, b1 = 0.9 and b2 = 0.999)" in note
    assert ("the first of them the wrong way;" in note) == (by < 0)
    assert "`--optimizer-kind NAME`" in note
    assert "`--like-init" in note


def test_steps_that_become_smaller_are_announced_with_what_the_count_makes_of_them(
    surgery, tmp_path
):
    source = save(tmp_path / "saved", at_count(recipe(), 12))

    result = surgery("rescale", source, tmp_path / "new", HEAD, "--by", "10", "--dry-run", "--json")

    (note,) = result.document["notes"]
    assert f"down to {min(coming_steps(10, 12)):.2g} times as large as usual" in note


def stored_adam(count):
    """Adam whose arguments are stored, after ``count`` gradients of 1."""
    optimizer = optax.inject_hyperparams(optax.adam)(1e-2, b1=0.8, b2=0.9999)
    state = optimizer.init(PARAMS)
    first, second = (
        jax.tree.map(lambda p, b=b: np.full_like(p, 1 - b**count), PARAMS) for b in (0.8, 0.9999)
    )
    moments = state.inner_state[0]._replace(count=np.int32(count), mu=first, nu=second)
    state = state._replace(inner_state=(moments, *state.inner_state[1:]))
    return optimizer, {"params": PARAMS, "opt_state": state}


def test_announced_factors_are_those_of_the_decays_that_are_stored(surgery, tmp_path):
    optimizer, tree = stored_adam(100_000)
    source, new = save(tmp_path / "saved", tree), tmp_path / "new"

    reset = surgery(
        "reset-optimizer", source, new, HEAD, "--optimizer-kind", "adam", "--json"
    ).document

    after = ocp.StandardCheckpointer().restore(new, jax.tree.map(jnp.asarray, tree))
    state, steps = after["opt_state"], []
    ones = jax.tree.map(np.ones_like, PARAMS)
    for _ in range(40):
        update, state = optimizer.update(ones, state, PARAMS)
        steps.append(float(np.abs(update["head"]["kernel"]).max() / 1e-2))
    coming = f"up to {max(steps):.1f} learning rates large (step {steps.index(max(steps)) + 1}, "
    (note,) = [note for note in reset["notes"] if "learning rates large" in note]
    assert f"{coming}with stored b1 = 0.8 and stored b2 = 0.9999)" in note

    kept = surgery(
        "rescale", source, tmp_path / "other", HEAD, "--by", "0.1", "--dry-run", "--json"
    ).document
    (note,) = [note for note in kept["notes"] if "as large as usual" in note]
    largest = max(coming_steps(0.1, 100_000, 0.8, 0.9999))
    assert f"up to {largest:.1f} times as large as usual" in note


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("op: reinit, init: uniform", "can be several times too large"),
        ("op: rescale, by: 0.999", "stored b1 = 0.8 and stored b2 = 0.9989)"),
        ("op: set, to: 0.99", "stored b1 = 0.8 and stored b2 = 0.99)"),
    ],
)
def test_a_factor_is_announced_for_decays_as_far_as_the_plan_leaves_them_known(
    surgery, tmp_path, edit, words
):
    _, tree = stored_adam(100_000)
    source, plan = save(tmp_path / "saved", tree), tmp_path / "plan.yaml"
    plan.write_text(
        "optimizer_kind: adam\nedits:\n- {op: reset-optimizer, at: params/head}\n"
        f"- {{{edit}, at: opt_state/hyperparams/b2}}\n"
    )

    result = surgery("plan", source, plan, "--json")

    (note,) = [note for note in result.document["notes"] if "with squares restart" in note]
    assert words in note


def test_one_kept_slot_is_announced_in_the_singular_and_each_state_once(surgery, tmp_path):
    labels = {"body": "slow", "head": "fast"}
    momentum = optax.chain(optax.clip(1.0), optax.trace(0.9))
    parts = optax.multi_transform({"slow": recipe(), "fast": momentum}, labels)
    source = save(tmp_path / "parts", after_training(parts))

    result = surgery(
        "rescale", source, tmp_path / "new", "params", "--by", "2", "--dry-run", "--json"
    )

    (adam, trace) = sorted(result.document["notes"])[::-1]
    assert "/slow/inner_state/1/0' (mu, nu) are kept as they were" in adam
    assert trace.startswith("1 slot of ")
    assert "/fast/inner_state/1' (trace) is kept as it was: " in trace
    assert "`--optimizer-kind NAME`" in trace
    assert "times as large" not in trace


@pytest.mark.parametrize("scale", [0.1, 0.5, 10.0])
def test_the_announced_step_is_the_one_that_optax_takes(scale):
    optimizer = optax.scale_by_adam(eps=0.0)
    gradient = np.ones(1, np.float32)
    state = optimizer.init(gradient)
    state = state._replace(
        count=np.int32(10**6), mu=np.ones(1, np.float32), nu=np.ones(1, np.float32)
    )
    steps = []
    for _ in range(199):
        update, state = optimizer.update(gradient / np.float32(scale), state)
        steps.append(float(update[0]))

    size, step = step_under_old_moments(scale, math.inf, Decays(0.9, 0.999))

    assert size == pytest.approx(max(steps) if scale < 1 else min(steps), rel=1e-3)
    assert abs(steps[step - 1] - size) < 1e-3


# --- accumulators behind a state that normalises ----------------------------------------------------------------


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """Adam's updates, averaged, behind a learning rate that leaves no trace."""
    chain = optax.chain(optax.adam(1e-3), optax.ema(0.9))
    return save(tmp_path_factory.mktemp("averaged") / "saved", after_training(chain))


def test_a_transform_of_what_stands_behind_adam_is_refused_with_what_to_say(
    surgery, averaged, tmp_path
):
    result = surgery(
        "rescale", averaged, tmp_path / "new", HEAD, "--by", "3", "--optimizer", "transform",
        "--optimizer-kind", "opt_state/0=adam",
    )  # fmt: skip

    assert result.code == 2
    assert "'opt_state/0/0' before it normalises the gradients" in result.err
    assert "`slots: {opt_state/1/ema: {power: K}}`" in result.err
    assert "--optimizer-kind" not in result.err


def test_the_slots_line_that_is_shown_settles_it_and_keeps_what_is_known_of_the_field(
    surgery, averaged, tmp_path
):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "optimizer_kind: adam\nslots: {opt_state/1/ema: {power: 0}}\noptimizer: transform\n"
        f"edits:\n  - {{op: rescale, at: {HEAD}, by: -3}}\n"
    )
    assert surgery("apply", averaged, tmp_path / "new", plan, "--quiet").code == 0
    chain = optax.chain(optax.adam(1e-3), optax.ema(0.9))
    expected = after_training(chain, -3.0)["opt_state"][1].ema["head"]["kernel"]
    found = restored(tmp_path / "new")["opt_state"][1]["ema"]["head"]["kernel"]
    np.testing.assert_allclose(found, expected, rtol=1e-4)

    plan.write_text(
        f"slots: {{opt_state/1/ema: {{power: 0}}}}\nedits:\n  - {{op: reset-optimizer, at: {HEAD}}}\n"
    )
    assert surgery("apply", averaged, tmp_path / "fresh", plan, "--quiet").code == 0
    fresh = restored(tmp_path / "fresh")["opt_state"][1]["ema"]["head"]["kernel"]
    np.testing.assert_array_equal(fresh, np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("kind", ["opt_state/1=ema", "opt_state/1=signum"])
def test_a_kind_that_would_feed_gradients_to_what_stands_behind_adam_is_refused(
    surgery, averaged, tmp_path, kind
):
    result = surgery(
        "rescale", averaged, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", kind
    )

    assert result.code == 2
    assert "says that gradients reach it" in result.err
    assert not (tmp_path / "new").exists()


def test_a_factory_that_makes_both_states_settles_them(surgery, tmp_path):
    made = optax.rmsprop(1e-3, momentum=0.9)
    source = save(tmp_path / "saved", after_training(made))
    rescale = ["rescale", source, tmp_path / "new", HEAD, "--by", "3", "--optimizer", "transform"]
    open_ = surgery(*rescale)
    assert open_.code == 2
    assert "one factory made both (`rmsprop`?): add `--optimizer-kind NAME`" in open_.err
    assert surgery(*rescale, "--optimizer-kind", "rmsprop", "--quiet").code == 0


def test_two_optimizers_in_a_tuple_do_not_stand_behind_each_other(surgery, tmp_path):
    adam, momentum = optax.adam(1e-3), optax.sgd(0.1, momentum=0.9)
    tree = after_training(adam)
    tree["opt_state"] = (tree["opt_state"], momentum.init(tree["params"]))
    source = save(tmp_path / "saved", tree)
    kinds = ["--optimizer-kind", "opt_state/0=adam", "--optimizer-kind", "opt_state/1=sgd"]
    result = surgery(
        "rescale", source, tmp_path / "new", HEAD, "--by", "3", *kinds, "--dry-run", "--json"
    )
    assert result.code == 0
    assert result.document["edits"][0]["twins"] == {"transform": 3}


def test_a_norm_of_zero_is_refused_by_the_params_name_where_twins_follow_it(surgery, tmp_path):
    tree = after_training(optax.scale_by_adam())
    tree["params"]["head"]["kernel"] = np.zeros((3, 2), np.float32)
    source = save(tmp_path / "saved", tree)
    options = ["--optimizer", "transform", "--optimizer-kind", "adam"]

    result = surgery("normalize", source, tmp_path / "new", HEAD, *options)

    assert result.code == 1
    assert f"'{HEAD}' cannot be normalized" in result.err
    assert "'opt_state" not in result.err


def test_a_kind_that_is_used_for_several_states_is_said_even_quietly_as_it_is_typed(
    surgery, tmp_path
):
    labels = {"body": "slow", "head": "fast"}
    parts = optax.multi_transform({"slow": optax.adam(0.1), "fast": optax.adam(0.2)}, labels)
    source = save(tmp_path / "parts", after_training(parts))

    found = surgery(
        "rescale", source, tmp_path / "new", "params", "--by", "2", "--optimizer-kind", "adam", "-q"
    )

    assert found.code == 0
    assert "`--optimizer-kind adam` is used for 'opt_state/inner_states/fast" in found.err
    recorded = (tmp_path / "new" / "surgery.json").read_text()
    assert "`optimizer_kind: adam` is used for 'opt_state/inner_states/fast" in recorded
