"""Slots of a donor under the clock here, judged by optax: the steps that it then takes of the same gradient."""

import functools
import itertools
import json
import re
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

LR = 1e-3


def params():
    return {name: {"w": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)} for name in ("a", "b")}


@jax.jit
def gradients(key):
    noise = [jax.random.normal(k, (3, 4)) for k in jax.random.split(key, 2)]
    return {name: {"w": 0.003 + 0.01 * one} for name, one in zip(("a", "b"), noise, strict=True)}


@functools.cache
def training(factory):
    """The optimizer, and its training and its next steps as compiled functions."""
    tx = getattr(optax, factory)(LR)

    def one(key, carry):
        made, state = carry
        updates, state = tx.update(gradients(key), state, made)
        return updates, (optax.apply_updates(made, updates), state)

    @jax.jit
    def train(steps, seed):
        key = jax.random.key(seed)
        start = params(), tx.init(params())
        return jax.lax.fori_loop(
            0, steps, lambda n, c: one(jax.random.fold_in(key, n), c)[1], start
        )

    @jax.jit
    def sizes(state):
        def size(carry, key):
            updates, carry = one(key, carry)
            return carry, jnp.linalg.norm(updates["b"]["w"])

        start = state["params"], state["opt_state"]
        return jax.lax.scan(size, start, jax.random.split(jax.random.key(7), 30))[1]

    return train, sizes


@functools.cache
def trained(factory, steps, seed=0):
    """A state after this many steps of an optax factory."""
    made, state = training(factory)[0](steps, seed)
    return {"params": made, "opt_state": state}


def saved(path, state):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return path


def steps_of(factory, state):
    """The sizes of the steps that layer b takes next under gradients that depend on nothing."""
    return np.asarray(training(factory)[1](state))


@pytest.fixture
def graft(surgery, tmp_path):
    """Layer b of a donor in a run: what the command says, and the state that Orbax restores."""

    def graft(factory, here, there, *options, donor=None, at=("params/b",)):
        run = saved(tmp_path / "run", trained(factory, here))
        other = saved(tmp_path / "donor", trained(donor or factory, there, seed=1))
        done = surgery("replace", run, tmp_path / "new", *at, "--with", other, *options, "--json")
        if done.code:
            return done, None
        with ocp.StandardCheckpointer() as checkpointer:
            return done, checkpointer.restore(tmp_path / "new", trained(factory, here))

    return graft


def policies(done):
    return {leaf["policy"] for leaf in done.document["leaves"] if leaf.get("policy")}


PAIRS = [
    ("adam", 400, 3, False),
    ("adam", 3, 400, False),
    ("adam", 0, 400, False),
    ("adam", 400, 400, True),
    ("adam", 400, 430, True),
    ("adam", 6000, 4000, True),
    ("adam", 6000, 600, False),
    ("radam", 400, 3, False),
    ("radam", 11, 10, True),
    ("radam", 6000, 4000, True),
    ("adan", 400, 3, False),
    ("adan", 11, 10, True),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("factory", "here", "there", "is_taken"), PAIRS)
def test_slots_are_taken_where_their_steps_stay_those_of_the_donor(
    graft, factory, here, there, is_taken
):
    done, state = graft(factory, here, there, "--optimizer-kind", factory)
    assert policies(done) == ({"donor"} if is_taken else {"warm"})
    own = steps_of(factory, trained(factory, there, seed=1))
    quotient = steps_of(factory, state) / own
    if is_taken:
        assert 1 / 1.1 < quotient.min() <= quotient.max() < 1.1
        return
    if there < here:  # what the donor's slots would have done
        naive = {**state, "opt_state": trained(factory, here)["opt_state"]}
        there_state = trained(factory, there, seed=1)["opt_state"]
        naive["opt_state"] = jax.tree.map(
            lambda ours, theirs: ours if ours.ndim == 0 else theirs, naive["opt_state"], there_state
        )
        assert np.abs(np.log(steps_of(factory, naive) / own)).max() > np.log(1.1)
    notes = " ".join(done.document["notes"])
    count = "'opt_state/0/t'" if factory == "adan" else "'opt_state/0/count'"
    assert f"counted {there:,} there, and {count} {here:,} here" in notes
    assert done.document["bytes_read"] > 0


def test_a_whole_model_takes_its_slots_along_with_their_count(graft):
    done, _ = graft("adam", 0, 400, "--optimizer-kind", "adam", at=("params",))
    assert any("`replace` 'opt_state/0/count' from" in note for note in done.document["notes"])


def test_with_the_count_named_the_run_resumes_as_the_donor_would(graft):
    at = ("params", "opt_state/0/count")
    done, state = graft("adam", 0, 400, "--optimizer-kind", "adam", at=at)
    assert policies(done) == {"donor"}
    own = steps_of("adam", trained("adam", 400, seed=1))
    np.testing.assert_allclose(steps_of("adam", state), own, rtol=1e-6)


@pytest.mark.parametrize("is_here", [False, True])
def test_a_count_that_stands_elsewhere_in_the_donor_is_taken_as_it_is_said(
    surgery, tmp_path, is_here
):
    """`replace` of 'opt_state/0/count' from a donor of `inject_hyperparams` was advised, where no such path is."""
    plain, injected = (
        lambda steps: after(optax.adam(LR), 1.0, steps),
        lambda steps: after(optax.inject_hyperparams(optax.adam)(LR), 1.0, steps),
    )
    here, there = (injected, plain) if is_here else (plain, injected)
    run, donor = saved(tmp_path / "run", here(30)), saved(tmp_path / "donor", there(3))
    words = ("replace", run, tmp_path / "new", "params", "--with", donor)
    kind = ("--optimizer-kind", "adam", "--json")
    (note,) = [n for n in surgery(*words, *kind).document["notes"] if "to take them" in n]
    (edit,) = re.findall(r"put `({.*?})` before this edit, in a plan", note)
    told = tmp_path / "told"
    assert surgery("rescale", donor, told, "params/a", "--by", "1", *kind[:2]).code == 0
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"optimizer_kind: adam\nedits:\n- {edit}\n- {{op: replace, at: params, with: {donor}}}\n".replace(
            str(donor), str(told)
        )
    )
    assert surgery("apply", run, tmp_path / "both", plan).code == 0
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(tmp_path / "both", here(30))["opt_state"]
    inner = state.inner_state if is_here else state
    own = there(3)["opt_state"]
    expected = own if is_here else own.inner_state
    jax.tree.map(np.testing.assert_array_equal, inner[0], expected[0])


def test_a_count_without_its_slots_is_said_with_what_it_does(graft):
    done, _ = graft("adam", 0, 400, "--optimizer-kind", "adam", at=("opt_state/0/count",))
    (note,) = [n for n in done.document["notes"] if "that it drives do not" in n]
    assert "'opt_state/0/count' comes from" in note
    assert "times as large as usual" in note


@pytest.mark.parametrize(("here", "donor"), [("adam", "adamax"), ("adamax", "adam")])
def test_slots_of_another_kind_are_not_taken_though_they_look_alike(graft, here, donor):
    done, _ = graft(here, 400, 400, donor=donor)
    assert policies(done) == {"warm"}
    assert any("another kind" in n or "one kind" in n for n in done.document["notes"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("call", "here", "there", "is_far"),
    [
        ("adam(1e-3, b2=0.9999)", 4000, 40_000, True),
        ("adam(1e-3, b2=0.999)", 4000, 40_000, False),
        ("adam(1e-3, b2=0.9)", 100, 400, False),
        ("adam(1e-3)", 100, 400, True),
    ],
)
def test_counts_are_compared_under_the_decays_that_a_call_says(
    surgery, tmp_path, call, here, there, is_far
):
    made, state = params(), optax.adam(LR).init(params())
    filled = {"mu": gradients(jax.random.key(0)), "nu": jax.tree.map(jnp.square, made)}
    for name, count in (("here", here), ("there", there)):
        counted = (state[0]._replace(count=jnp.asarray(count), **filled), *state[1:])
        saved(tmp_path / name, {"params": made, "opt_state": counted})
    options = ["--with", tmp_path / "there", "--optimizer-kind", call, "--json"]
    done = surgery("replace", tmp_path / "here", tmp_path / "new", "params/b", *options)
    assert done.code == 0
    assert ("it has counted" in " ".join(done.document["notes"])) == is_far


@pytest.mark.parametrize(("there", "code"), [(400, 0), (3, 2)])
def test_an_explicit_transform_takes_the_donors_slots_or_is_refused(graft, there, code):
    options = ["--optimizer-kind", "adam", "--optimizer", "transform"]
    done, _ = graft("adam", 400, there, *options)
    assert done.code == code
    if code:
        (problem,) = done.document["problems"]
        assert "cannot go on for 'params/b/w'" in problem["what"]
        assert "counted 3 there" in problem["why"]


@pytest.mark.parametrize(("there", "is_said"), [(3, True), (400, False), (410, False)])
def test_averaged_moments_of_other_counts_are_said(surgery, tmp_path, there, is_said):
    run = saved(tmp_path / "run", trained("adam", 400))
    other = saved(tmp_path / "other", trained("adam", there, seed=1))
    done = surgery("average", run, tmp_path / "new", "--with", other, "--dry-run", "--json")
    notes = [n for n in done.document["notes"] if "'opt_state/0/count'" in n]
    assert [f"at {there}, and it stays at 400" in n for n in notes] == [True] * is_said


def test_averaged_moments_of_another_kind_are_said(surgery, tmp_path):
    run = saved(tmp_path / "run", trained("adam", 400))
    other = saved(tmp_path / "other", trained("adamax", 400))
    done = surgery("average", run, tmp_path / "new", "--with", other, "--dry-run", "--json")
    assert any("not known to be of the same kind in" in note for note in done.document["notes"])


def test_moments_taken_by_name_without_their_count_are_said(surgery, tmp_path):
    run = saved(tmp_path / "run", trained("adam", 400))
    other = saved(tmp_path / "other", trained("adam", 3, seed=1))
    moments = ["opt_state/0/mu", "opt_state/0/nu"]
    done = surgery("replace", run, tmp_path / "new", *moments, "--with", other, "--json")
    (note,) = [n for n in done.document["notes"] if "it stays at" in n]
    assert "4 slots under 'opt_state/0/count' come from where it stands at 3" in note


def test_an_inserted_tree_of_params_brings_slots_as_a_replaced_one_does(surgery, tmp_path):
    run = saved(tmp_path / "run", trained("adam", 400))
    for there, policy in ((3, "warm"), (420, "donor")):
        other = saved(tmp_path / f"other{there}", trained("adam", there, seed=1))
        words = ["insert-item", run, tmp_path / f"n{there}", "params/b", "--with", other]
        done = surgery(*words, "--from", "params/b", "--optimizer-kind", "adam", "--json")
        assert policies(done) == {policy}


def numbered(learning_rate=1e-2, **settings):
    return optax.inject_hyperparams(optax.amsgrad)(learning_rate, **settings)


BY_NUMBERS = {
    "schedule_free_sgd": contrib.schedule_free_sgd(1e-2),
    "dog": contrib.dog(1.0),
    "dowg": contrib.dowg(1.0),
    "prodigy": contrib.prodigy(1.0),
    "dadapt_adamw": contrib.dadapt_adamw(1.0),
    "mechanize": contrib.mechanize(optax.sgd(1e-2, momentum=0.9)),
}


def after(tx, size, steps=3):
    made = params()
    state = tx.init(made)
    for step in range(steps):
        grads = jax.tree.map(lambda g: size * g, gradients(jax.random.key(step)))
        updates, state = tx.update(grads, state, made)
        made = optax.apply_updates(made, updates)
    return {"params": made, "opt_state": state}


def grafted(surgery, tmp_path, here, there):
    run, donor = saved(tmp_path / "run", here), saved(tmp_path / "donor", there)
    return surgery("replace", run, tmp_path / "new", "params/b", "--with", donor, "--json")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BY_NUMBERS)
def test_slots_that_go_by_an_estimate_are_taken_only_where_it_is_the_same(surgery, tmp_path, name):
    tx = BY_NUMBERS[name]
    steps = (
        30 if name == "schedule_free_sgd" else 3
    )  # whose sum counts steps, whatever the gradients
    done = grafted(surgery, tmp_path, after(tx, 1e-2), after(tx, 1.0, steps))
    assert "donor" not in policies(done)
    assert any(
        "not taken from" in note and "by which they go" in note for note in done.document["notes"]
    )


@pytest.mark.parametrize("name", ["schedule_free_sgd", "dog", "dowg", "prodigy", "dadapt_adamw"])
def test_slots_that_go_by_an_estimate_are_taken_from_a_state_with_the_same(surgery, tmp_path, name):
    state = after(BY_NUMBERS[name], 1e-2)
    assert policies(grafted(surgery, tmp_path, state, state)) == {"donor"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["dog", "dowg", "prodigy", "dadapt_adamw", "mechanize"])
@pytest.mark.parametrize("policy", [[], ["--optimizer", "transform"]])
def test_a_factor_of_some_params_says_that_an_estimate_for_all_stays(
    surgery, tmp_path, name, policy
):
    run = saved(tmp_path / "run", after(BY_NUMBERS[name], 1e-2))
    done = surgery("rescale", run, tmp_path / "new", "params/b", "--by", "0.5", *policy, "--json")
    assert [
        one["taken_for"]
        for one in done.document["assumptions"]
        if "one estimate" in one["taken_for"]
    ]


@pytest.mark.parametrize("settings", [{"b1": 0.0}, {"b2": 0.5}])
def test_slots_that_were_filled_with_another_stored_decay_restart(surgery, tmp_path, settings):
    done = grafted(surgery, tmp_path, after(numbered(), 1.0), after(numbered(**settings), 1.0))
    assert policies(done) == {"warm"}
    (name,) = settings
    assert any(f"hyperparams/{name}', by which they go" in note for note in done.document["notes"])


@pytest.mark.parametrize("there", [1.0, None])
def test_what_a_slot_began_with_is_no_setting_by_which_it_goes(surgery, tmp_path, there):
    """Of other initial scales, or of one that only one side has on disk, nothing is left to be said."""

    def injected(scale):
        return optax.inject_hyperparams(optax.rmsprop)(1e-2, initial_scale=scale)

    donor = injected(there) if there is not None else optax.rmsprop(1e-2)
    done = grafted(surgery, tmp_path, after(injected(0.0), 1.0), after(donor, 1.0))
    assert not any("initial_scale" in note for note in done.document["notes"])
    if there is not None:
        assert policies(done) == {"donor"}


def test_a_stored_learning_rate_that_differs_is_said(surgery, tmp_path):
    done = grafted(surgery, tmp_path, after(numbered(), 1.0), after(numbered(1e-4), 1.0))
    assert policies(done) == {"donor"}
    assert any("is 0.0001 there and 0.01 here" in note for note in done.document["notes"])
    same = grafted(surgery, tmp_path / "same", after(numbered(), 1.0), after(numbered(), 1.0))
    assert not any("is 0.01" in note for note in same.document["notes"])


LOOK_ALIKE = ("adabelief", "adam", "adamax", "yogi")
"""Factories whose states have the same names and shapes, and hold other things."""


@functools.cache
def grown(name, steps, seed):
    """A state after steps with gradients most of which is their mean, and the step that comes next."""
    tx, made = getattr(optax, name)(LR), params()
    state, update = tx.init(made), jax.jit(tx.update)
    for n in range(steps + 1):
        key = jax.random.fold_in(jax.random.key(seed), n)
        grads = jax.tree.map(lambda g: 1e-3 + 0.005 * g, gradients(key))
        before = {"params": made, "opt_state": state}
        updates, state = update(grads, state, made)
    return before, np.asarray(updates["b"]["w"])


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("here", "there"), list(itertools.permutations(LOOK_ALIKE, 2)))
@pytest.mark.parametrize("is_named", [False, True])
def test_a_donor_whose_kind_nobody_knows_is_an_assumption_wherever_its_slots_are_taken(
    surgery, tmp_path, here, there, is_named
):
    """Optax's next step with them is another than that of its own slots after the same gradients, or they restart."""
    run, donor = grown(here, 40, 0)[0], grown(there, 40, 1)[0]
    words = ["params/b", "--with", saved(tmp_path / "donor", donor), "--json"]
    words += ["--optimizer-kind", here] if is_named else []
    done = surgery("replace", saved(tmp_path / "run", run), tmp_path / "new", *words)
    if policies(done) != {"donor"}:
        return
    (taken,) = done.document["assumptions"]
    assert taken["node"] == "opt_state/0"
    assert taken["taken_for"].startswith("one of the same kind as in '")
    assert all(name in taken["unless"][0] for name in LOOK_ALIKE)
    record = json.loads((tmp_path / "new" / "surgery.json").read_text())
    assert {one["donor_assumed"]["taken_for"] for one in record["slots"]} == {taken["taken_for"]}


def test_a_step_with_the_slots_of_another_kind_is_another_one():
    for here, there in (("adam", "adabelief"), ("adabelief", "adam")):
        (state, own), (other, _) = grown(here, 40, 1), grown(there, 40, 1)
        key = jax.random.fold_in(jax.random.key(1), 40)
        grads = jax.tree.map(lambda g: 1e-3 + 0.005 * g, gradients(key))
        updates, _ = getattr(optax, here)(LR).update(grads, other["opt_state"], state["params"])
        quotient = np.abs(np.log(np.asarray(updates["b"]["w"]) / own))
        assert np.median(quotient) > np.log(1.1)


def test_kinds_that_were_said_of_both_are_compared_and_no_assumption(surgery, tmp_path):
    run = saved(tmp_path / "run", trained("adam", 400))
    words = ["params/a", "--by", "0.5", "--json", "--optimizer-kind"]
    for name in ("adam", "adabelief"):
        other = saved(tmp_path / name, trained(name, 400, seed=1))
        surgery("rescale", other, tmp_path / f"said-{name}", *words, name)
    words = ["params/b", "--optimizer-kind", "adam", "--json", "--with"]
    done = surgery("replace", run, tmp_path / "alike", *words, tmp_path / "said-adam")
    assert policies(done) == {"donor"}
    assert done.document["assumptions"] == []
    done = surgery("replace", run, tmp_path / "apart", *words, tmp_path / "said-adabelief")
    assert policies(done) == {"warm"}
    assert any("is of another kind than" in note for note in done.document["notes"])


def test_an_average_over_runs_of_kinds_that_nobody_said_is_told(surgery, tmp_path):
    run = saved(tmp_path / "run", trained("adam", 400))
    other = saved(tmp_path / "other", trained("adabelief", 400, seed=1))
    done = surgery("average", run, tmp_path / "new", "--with", other, "--dry-run", "--json")
    assert any("taken for one of the same kind as in" in note for note in done.document["notes"])


def _sgd(rate):
    return optax.sgd(rate, momentum=0.9)


def _by_layer(rate):
    labels = {"a": {"w": "one"}, "b": {"w": "two"}}
    return optax.multi_transform({"one": _sgd(0.1), "two": _sgd(rate)}, labels)


SCHEDULED = {
    "sgd": _sgd,
    "lion": optax.lion,
    "amsgrad": optax.amsgrad,
    "injected": optax.inject_hyperparams(optax.rmsprop),
    "by layer": _by_layer,
    "nested": lambda rate: optax.chain(optax.chain(_sgd(rate))),
    "in a chain of its own": lambda rate: optax.chain(
        optax.chain(optax.trace(0.9)), optax.chain(optax.scale_by_schedule(rate))
    ),
    "several small steps": lambda rate: optax.MultiSteps(_sgd(rate), 1).gradient_transformation(),
    "decay by a schedule": lambda rate: optax.chain(
        optax.trace(0.9), optax.inject_hyperparams(optax.add_decayed_weights)(weight_decay=rate)
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", SCHEDULED)
@pytest.mark.parametrize(("there", "is_said"), [(104, True), (100, False)])
def test_a_schedule_that_stands_elsewhere_in_the_donor_is_said_with_both_counts(
    surgery, tmp_path, name, there, is_said
):
    tx = SCHEDULED[name](optax.linear_schedule(0.0, 1e-2, 100, transition_begin=50))
    made = params()
    states = []
    for steps in (100, there):
        state = tx.init(made)
        grads = gradients(jax.random.key(steps))
        _, state = tx.update(grads, state, made)
        state = jax.tree.map(
            lambda leaf, n=steps: (
                jnp.full_like(leaf, n) if leaf.shape == () and leaf.dtype == jnp.int32 else leaf
            ),
            state,
        )
        states.append({"params": made, "opt_state": state})
    done = grafted(surgery, tmp_path, *states)
    assert done.code == 0
    said = [note for note in done.document["notes"] if "of a schedule, has counted" in note]
    assert bool(said) == (is_said and policies(done) == {"donor"})
    assert all("counted 104 there and 100 here" in note for note in said)
    if name not in ("amsgrad", "injected", "several small steps"):
        assert policies(done) == {"donor"}


def test_a_schedule_on_one_side_alone_is_said(surgery, tmp_path):
    rate = optax.linear_schedule(0.0, 1e-2, 100)
    with_one, without = after(_sgd(rate), 1e-2), after(_sgd(1e-2), 1e-2)
    done = grafted(surgery, tmp_path, with_one, without)
    assert any("counts for a schedule, and none stands there" in n for n in done.document["notes"])
    done = grafted(surgery, tmp_path / "turned", without, with_one)
    assert any("a schedule there, and none stands here" in n for n in done.document["notes"])


def test_a_donor_without_optimizer_state_is_the_reason_why_slots_restart(surgery, tmp_path):
    run = saved(tmp_path / "run", trained("adam", 400))
    params = saved(tmp_path / "params", {"params": trained("adam", 400, seed=1)["params"]})
    done = surgery("replace", run, tmp_path / "new", "params", "--with", params, "--json")
    assert policies(done) == {"warm"}
    (said,) = [note for note in done.document["notes"] if "not taken from" in note]
    assert said.endswith("but restart: it has no optimizer state of such params")


def test_the_way_to_say_the_kind_of_a_donor_works_as_it_stands(surgery, tmp_path):
    """With the name of the factory in its place: a copy of the donor keeps the word in its record."""
    run, donor = (
        saved(tmp_path / name, clipped(seed)) for seed, name in enumerate(("run", "donor"))
    )
    replace = ("replace", run, tmp_path / "new", "params/a", "--optimizer-kind", "adam", "--json")
    done = surgery(*replace, "--with", donor, "--dry-run")
    (said,) = [note for note in done.document["notes"] if "not taken from" in note]
    words = shlex.split(said.split("`")[1])[1:]

    told = tmp_path / "told"
    assert surgery(*[{"DST": told, "NAME": "adam"}.get(word, word) for word in words]).code == 0

    assert policies(surgery(*replace, "--with", told)) == {"donor"}


def clipped(seed):
    """A run of Adam behind a clip, of which only the user can say that it is one."""
    transformation = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    draws = np.random.default_rng(seed)
    params = {name: draws.normal(size=(4, 3)).astype("f4") for name in "ab"}
    state, update = transformation.init(params), jax.jit(transformation.update)
    for _ in range(20):
        gradients = {name: draws.normal(size=(4, 3)).astype("f4") for name in "ab"}
        _, state = update(gradients, state, params)
    return {"params": params, "opt_state": state}


@pytest.mark.parametrize(("count", "is_said"), [(20, False), (21, True)])
def test_memories_whose_places_are_of_other_steps_are_said(surgery, tmp_path, count, is_said):
    """L-BFGS keeps the differences of step n at place n modulo the size of its memory."""
    run, other = (
        saved(tmp_path / f"run{seed}", searched(steps, seed))
        for seed, steps in enumerate((20, count))
    )
    done = surgery("average", run, tmp_path / "new", "--with", other, "--dry-run", "--json")
    assert any("under 'opt_state/count' come from" in n for n in done.document["notes"]) == is_said


def searched(steps, seed):
    draws = np.random.default_rng(seed)
    transformation = optax.scale_by_lbfgs(memory_size=3)
    params = {"a": draws.normal(size=(4, 3)).astype("f4")}
    state, update = transformation.init(params), jax.jit(transformation.update)
    for _ in range(steps):
        gradients = jax.tree.map(lambda p: np.asarray(p) - 1, params)
        updates, state = update(gradients, state, params)
        params = jax.tree.map(lambda p, u: np.asarray(p - 0.1 * u), params, updates)
    return {"params": params, "opt_state": state}


ENDS = {
    "taken by name": ("{op: replace, at: opt_state/0, with: d}", False),
    "set by name": ("{op: replace, at: [opt_state/0/mu, opt_state/0/nu], with: 0.5}", False),
    "taken in part": ("{op: replace, at: opt_state/0/mu, with: d}", True),
    "scaled": ("{op: rescale, at: params, by: 2}", True),
    "nothing": ("{op: rescale, at: step, by: 1, optional: true}", True),
}


@pytest.mark.parametrize("name", ENDS)
def test_slots_that_a_later_edit_takes_by_name_are_not_said_to_restart(surgery, tmp_path, name):
    edit, is_said = ENDS[name]
    run, donor = saved(tmp_path / "run", trained("adam", 400)), tmp_path / "donor"
    saved(donor, trained("adam", 3, seed=1))
    plan, first = tmp_path / "plan.yaml", "{op: replace, at: params, with: d, twins: named}"
    plan.write_text(f"sources: {{d: {donor}}}\noptimizer_kind: adam\nedits:\n- {first}\n- {edit}\n")
    done = surgery("apply", run, tmp_path / "new", plan, "--json")
    assert done.code == 0, done.err
    said = [n for n in done.document["notes"] if "not taken from" in n or "to take them" in n]
    assert bool(said) == is_said
    with ocp.StandardCheckpointer() as checkpointer:
        new = checkpointer.restore(tmp_path / "new", trained("adam", 400))["opt_state"][0]
    theirs = trained("adam", 3, seed=1)["opt_state"][0]
    is_theirs = all(
        np.array_equal(one, other)
        for one, other in zip(jax.tree.leaves(new), jax.tree.leaves(theirs), strict=True)
    )
    assert is_theirs == (name == "taken by name")
