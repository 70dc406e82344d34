"""The script's own optimizer on tiny params, against what is known of each optimizer by its kind."""

import itertools

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest

from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.optimizer.follow.decays import Decays, decays_tried
from surgery_cli.script.optimizer_trial import try_optimizer
from surgery_cli.script.optimizers import Optimizer
from surgery_cli.script.pytrees import plain_path, stored_leaves
from surgery_cli.script.settled_slots import settled
from surgery_cli.script.slot_powers import Measured
from surgery_cli.tree.paths import LeafPath
from tests.optimizer.optax_registry import OPTIMIZERS, PARAMS, train_state, tree_of

SHAPES = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32), PARAMS)
TELLING = [
    "adam", "adamax", "adopt", "adafactor_momentum", "adafactor_noparamscale", "lamb", "lars",
    "amsgrad", "adabelief", "nadam", "lion", "novograd", "sm3", "rmsprop_centered", "signum",
    "sgd_momentum", "ademamix",
]  # fmt: skip
FACTORY = {
    "adafactor_momentum": "adafactor",
    "adafactor_noparamscale": "adafactor-without-parameter-scale",
    "rmsprop_centered": "rmsprop",
    "sgd_momentum": "sgd",
}


def tried(transformation):
    """What a trial shows, by the path in a train state."""
    found = try_optimizer(Optimizer(transformation, SHAPES))
    return {LeafPath(("opt_state", *path)): seen for path, seen in found.items()}


def powers(found):
    slots = (s for s in found.slots.values() if s.relation != "hole" and s.in_optimizer)
    return {slot.path: (slot.power, slot.is_even) for slot in slots}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TELLING)
def test_a_trial_finds_the_powers_that_the_optimizers_name_says(name):
    tree = train_state(name)
    by_trial = powers(settled(survey(tree, params="params"), tried(OPTIMIZERS[name]())))
    by_name = powers(survey(tree, params="params", kind=FACTORY.get(name, name)))
    assert by_trial == by_name
    assert None not in {power for power, _ in by_trial.values()}


def test_clipping_that_rests_leaves_the_powers_as_they_are():
    tree = train_state("clip_adam")
    found = settled(survey(tree, params="params"), tried(OPTIMIZERS["clip_adam"]()))
    assert {s.name: s.power for s in found.slots.values()} == {"mu": -1, "nu": -2}
    assert found.unsure == []


@pytest.mark.parametrize("every", [2, 3, 8])
def test_an_optimizer_behind_an_accumulation_of_gradients_is_waited_for(every):
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
    transformation = optax.chain(
        optax.clip(1.0), optax.MultiSteps(chain, every).gradient_transformation()
    )
    state = {"params": PARAMS, "opt_state": transformation.init(PARAMS)}
    before = survey(tree_of(state), params="params")
    assert {s.name: s.power for s in before.slots.values()} == dict.fromkeys(
        ["acc_grads", "mu", "nu"]
    )
    found = settled(before, tried(transformation))
    assert {s.name: s.power for s in found.slots.values()} == {"acc_grads": -1, "mu": -1, "nu": -2}


@pytest.mark.parametrize("name", ["l2_before_adam", "yogi"])
def test_what_is_no_power_of_the_factor_stays_unsure(name):
    """Decay that is mixed into the gradient, and squares that do not start at zero."""
    before = survey(train_state(name), params="params")
    found = settled(before, tried(OPTIMIZERS[name]()))
    assert found.unsure
    assert all(
        slot.power in (None, before.slots[path].power, -1) for path, slot in found.slots.items()
    )


def test_initial_values_are_the_optimizers_own():
    transformation = optax.adagrad(0.1, initial_accumulator_value=0.5)
    tree = train_state("adagrad")
    before = survey(tree, params="params")
    assert {slot.fresh for slot in before.slots.values()} == {None}
    found = settled(before, tried(transformation))
    assert {slot.fresh for slot in found.slots.values()} == {0.5}


@pytest.mark.parametrize("name", ["dadapt_adamw", "prodigy", "dog", "dowg"])
def test_what_hangs_on_the_whole_run_is_still_assumed_after_a_trial(name):
    """An estimate for all params, as in Prodigy: no trial on tiny params shows that it stays what it is."""
    behind_a_clip = optax.chain(optax.clip(1.0), OPTIMIZERS[name]())
    state = {"params": PARAMS, "opt_state": behind_a_clip.init(PARAMS)}
    before = survey(tree_of(state), params="params")
    on_the_run = {p for p, s in before.slots.items() if s.assumed and s.assumed.is_of_the_run}
    assert on_the_run
    seen = {plain_path(path): Measured(-1, False, 0.0) for path in before.slots}
    found = settled(before, seen)
    assert all(found.slots[p].assumed and found.slots[p].assumed.is_of_the_run for p in on_the_run)


@pytest.mark.parametrize(
    ("transformation", "decays"),
    [
        (optax.adamw(0.1, b1=0.5, b2=0.9999), {"mu": 0.5, "nu": 0.9999}),
        (optax.adam(0.1, b1=0.0), {"mu": 0.0, "nu": 0.999}),
        (optax.rmsprop(0.1, decay=0.97), {"nu": 0.97}),
        (optax.lion(0.1, b2=0.95), {"mu": 0.95}),
        (optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.8)), {"trace": 0.8}),
        (optax.adagrad(0.1), {"sum_of_squares": None}),
    ],
    ids=["adamw", "adam", "rmsprop", "lion", "sgd", "adagrad"],
)
def test_a_trial_finds_the_decays_of_moments(transformation, decays):
    state = {"params": PARAMS, "opt_state": transformation.init(PARAMS)}
    found = settled(survey(tree_of(state), params="params"), tried(transformation))
    assert {slot.name: slot.decay for slot in found.slots.values()} == decays


@pytest.mark.parametrize(
    ("clip", "power"), [(optax.clip_by_global_norm(1e-9), None), (optax.clip_by_block_rms(1e-9), 0)]
)
def test_signs_behind_a_clip_are_no_surer_than_what_they_are_of(clip, power):
    """Lion's sum of two gradients may turn a sign where they were clipped by different amounts."""
    seen = tried(optax.chain(clip, optax.scale_by_lion(), optax.trace(0.9)))
    traces = [one for path, one in seen.items() if "trace" in path]
    assert {(one.power, one.is_per_leaf) for one in traces} == {(power, power == 0)}


def test_signs_rest_on_the_sizes_of_gradients_at_which_what_they_are_of_follows():
    """Above the threshold, the clip makes Lion's mu no power of an array, and may turn a sign of its sums."""
    seen = tried(
        optax.chain(optax.clip_by_global_norm(0.1), optax.scale_by_lion(), optax.trace(0.9))
    )
    said = {one.assumed for path, one in seen.items() if {"mu", "trace"} & set(path)}
    assert len(said) == 1
    assert None not in said


def test_decays_are_known_where_those_of_all_moments_were_seen():
    tree = tree_of({"params": PARAMS, "opt_state": optax.adam(0.1, b1=0.8).init(PARAMS)})
    slots = settled(survey(tree, params="params"), tried(optax.adam(0.1, b1=0.8))).slots.values()
    assert decays_tried(slots) == Decays(0.8, 0.999)
    without = [s if s.is_second_moment else msgspec.structs.replace(s, decay=None) for s in slots]
    assert decays_tried(without) is None


def test_an_optimizer_that_needs_more_than_gradients_raises_its_own_error():
    with pytest.raises(TypeError, match="value"):
        try_optimizer(Optimizer(OPTIMIZERS["polyak_sgd"](), SHAPES))


def of_trace(transformation):
    """The slots of momentum in a chain, after a trial."""
    state = {"params": PARAMS, "opt_state": transformation.init(PARAMS)}
    found = settled(survey(tree_of(state), params="params"), tried(transformation))
    return [slot for slot in found.slots.values() if slot.name == "trace"]


@pytest.mark.parametrize(
    "before",
    [optax.contrib.normalize, lambda: optax.clip_by_global_norm(1e-9)],
    ids=["norm", "clip"],
)
def test_what_follows_a_factor_of_all_leaves_at_once_alone_is_unsure(before):
    slots = of_trace(optax.chain(before(), optax.trace(0.9)))
    assert {slot.power for slot in slots} == {None}
    assert all("its own param alone" in slot.unsure_because for slot in slots)


@pytest.mark.parametrize(
    "before", [optax.scale_by_trust_ratio, optax.scale_by_param_block_norm, optax.centralize]
)
def test_what_follows_a_factor_of_a_leaf_but_no_array_is_known_as_that(before):
    slots = of_trace(optax.chain(before(), optax.trace(0.9)))
    assert {(slot.power, slot.is_per_leaf) for slot in slots if len(slot.param) and slot.power} <= {
        (1, True), (0, True), (-1, True), (-1, False)
    }  # fmt: skip
    assert any(slot.is_per_leaf for slot in slots)


def test_an_array_is_followed_where_every_element_goes_its_own_way():
    slots = of_trace(optax.trace(0.9))
    assert {(slot.power, slot.is_per_leaf, slot.assumed) for slot in slots} == {(-1, False, None)}


def test_a_clip_that_acts_on_large_gradients_is_named_as_assumed():
    slots = of_trace(optax.chain(optax.clip(0.5), optax.trace(0.9)))
    assert {slot.power for slot in slots} == {-1}
    said = "one that meets gradients of about 1e-06 to 0.1, as it did where it was tried out"
    assert {slot.assumed.taken_for for slot in slots} == {said}


SIZED = {
    "adafactor": lambda: optax.adafactor(0.1, min_dim_size_to_factor=2, momentum=0.9),
    "block_rms": lambda: optax.chain(optax.scale_by_param_block_rms(0.5), optax.trace(0.9)),
    "block_norm": lambda: optax.chain(optax.scale_by_param_block_norm(), optax.trace(0.9)),
    "trust": lambda: optax.chain(optax.scale_by_trust_ratio(min_norm=5.0), optax.trace(0.9)),
    "trust_eps": lambda: optax.chain(optax.scale_by_trust_ratio(eps=1e-3), optax.trace(0.9)),
    "behind_adam": lambda: optax.chain(
        optax.scale_by_adam(), optax.scale_by_trust_ratio(min_norm=3.0), optax.trace(0.9)
    ),
    "lars_decay": lambda: optax.lars(0.1, weight_decay=1e-3),
    "decay": lambda: optax.chain(optax.add_decayed_weights(1e-3), optax.trace(0.9)),
    "adaptive_clip": lambda: optax.chain(optax.adaptive_grad_clip(0.1), optax.trace(0.9)),
    "clip": lambda: optax.chain(optax.clip(1.0), optax.trace(0.9)),
    "adabelief": lambda: optax.adabelief(0.1),
    "adabelief_eps": lambda: optax.adabelief(0.1, eps_root=1e-12),
    "adamax": lambda: optax.adamax(0.1),
    "adopt": lambda: optax.contrib.adopt(0.1),
    "behind_rms": lambda: optax.chain(optax.scale_by_rms(eps=1e-6), optax.trace(0.9)),
    "lamb": lambda: optax.lamb(0.1),
}  # fmt: skip


def as_trained(transformation, factor, gradients, params):
    """The state after some steps with gradients and params of these sizes, one param times a factor all along."""
    draws = np.random.default_rng(1)
    by = {"a": factor, "b": 1.0}
    held = {n: jnp.asarray(draws.normal(size=(6, 8)) * params * c, "f4") for n, c in by.items()}
    state = jax.jit(transformation.init)(held)
    update = jax.jit(transformation.update)
    for _ in range(8):
        drawn = {n: draws.normal(size=(6, 8)) * gradients / c for n, c in by.items()}
        _, state = update(jax.tree.map(lambda g: jnp.asarray(g, "f4"), drawn), state, held)
    return {plain_path(path): np.asarray(leaf, "f8") for path, leaf in stored_leaves(state)}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", SIZED)
def test_a_power_without_an_assumption_is_that_of_training_with_params_and_gradients_of_any_size(
    name,
):
    transformation = SIZED[name]()
    shapes = {n: jax.ShapeDtypeStruct((6, 8), jnp.float32) for n in "ab"}
    seen = try_optimizer(Optimizer(transformation, shapes))
    sure = {p: one for p, one in seen.items() if one.power is not None and one.assumed is None}
    for sizes in itertools.product([1e-6, 1e-4, 0.1, 100.0], [1e-4, 0.03, 2.0, 50.0]):
        plain, scaled = (as_trained(transformation, c, *sizes) for c in (1.0, 0.25))
        for path, one in sure.items():
            wanted = plain[path] * (0.25**one.power if path[-1] == "a" else 1.0)
            apart = np.abs(scaled[path] - wanted).max() / np.abs(wanted).max()
            assert apart < 0.02, (sizes, path)


LIKE_AT_BOTH_ENDS = {
    "elements": lambda most: [optax.clip(most), optax.scale_by_trust_ratio()],
    "columns": lambda most: [optax.adaptive_grad_clip(most), optax.scale_by_trust_ratio()],
    "normed": lambda most: [optax.clip(most), optax.contrib.normalize()],
    "behind params": lambda most: [
        optax.scale_by_trust_ratio(),
        optax.clip(most),
        optax.scale_by_trust_ratio(),
    ],
}
"""What makes momentum follow by one power far from a threshold on either side of it, and by none near it."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("threshold", [4e-5, 4e-3, 0.02, 0.5, 10.0, 25.0])
@pytest.mark.parametrize("before", LIKE_AT_BOTH_ENDS)
def test_a_threshold_between_the_sizes_that_are_tried_is_seen(before, threshold):
    chain = optax.chain(*LIKE_AT_BOTH_ENDS[before](threshold), optax.trace(0.9))
    seen = try_optimizer(Optimizer(chain, {"w": jax.ShapeDtypeStruct((6, 8), jnp.float32)}))
    assert [one.assumed is None for one in seen.values() if one.power is not None] in ([], [False])


def _decaying_from(step):
    decay = optax.linear_schedule(0.0, 1.0, 10, transition_begin=step)
    return optax.inject_hyperparams(optax.add_decayed_weights)(weight_decay=decay)


def _signs_from(step):
    signs = optax.stateless(lambda updates, _: jax.tree.map(jnp.sign, updates))
    return optax.conditionally_transform(signs, lambda count: count >= step)


@pytest.mark.parametrize("before", [_decaying_from, _signs_from])
@pytest.mark.parametrize("after", [optax.adam(1e-2), optax.sgd(1e-2, momentum=0.9)])
@pytest.mark.parametrize(("starts", "count", "holds"), [(30, 60, False), (30, 20, True)])
def test_a_rule_that_sets_in_after_many_steps_is_seen_by_a_state_that_has_counted_them(
    before, after, starts, count, holds
):
    transformation = optax.chain(before(starts), after)
    state = transformation.init(PARAMS)
    counters = {
        plain_path(path): count
        for path, leaf in stored_leaves(state)
        if jnp.shape(leaf) == () and jnp.issubdtype(jnp.result_type(leaf), jnp.integer)
    }
    assert counters
    optimizer = Optimizer(transformation, SHAPES)
    for given, expected in (({}, True), (counters, holds)):
        found = try_optimizer(optimizer, given)
        slots = [one for path, one in found.items() if path[-2] in PARAMS or path[-1] in PARAMS]
        assert slots
        assert {one.power is not None for one in slots} == {expected}


@pytest.mark.parametrize("name", ["adam", "novograd", "lion", "ademamix", "sm3", "adopt"])
def test_counters_of_a_long_run_take_nothing_from_what_is_known_of_a_factory(name):
    transformation = OPTIMIZERS[name]()
    optimizer = Optimizer(transformation, SHAPES)
    paths = [plain_path(path) for path, _ in stored_leaves(transformation.init(PARAMS))]
    plain, jumped = try_optimizer(optimizer), try_optimizer(optimizer, dict.fromkeys(paths, 5000))
    assert {p: one.rule for p, one in jumped.items()} == {p: one.rule for p, one in plain.items()}
