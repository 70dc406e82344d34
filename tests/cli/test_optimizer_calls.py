"""`--optimizer-kind` as a call of optax: it is tried out, and what training would have made is what comes of it."""

from __future__ import annotations

import inspect
import json
import shlex

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.script.optimizer_call import COUNTS, factories, optimizer_of
from tests.installed import is_older

PARAMS = {"body": np.full((4, 3), 0.5, np.float32), "head": np.full((3, 2), -0.25, np.float32)}
HEAD = "params/head"
CALLS = {
    "clip before adamw": (
        "chain(clip_by_global_norm(1.0), adamw(1e-3, b2=0.95))",
        lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, b2=0.95)),
    ),
    "a start that fades": (
        "rmsprop(1e-3, initial_scale=1.0, bias_correction=True)",
        lambda: optax.rmsprop(1e-3, initial_scale=1.0, bias_correction=True),
    ),
    "a start that stays": (
        "optax.adagrad(1e-3, initial_accumulator_value=0.5)",
        lambda: optax.adagrad(1e-3, initial_accumulator_value=0.5),
    ),
    "a kind that only the name tells": ("contrib.adopt(1e-3)", lambda: contrib.adopt(1e-3)),
    "accumulation": ("MultiSteps(adam(1e-3), 2)", lambda: optax.MultiSteps(optax.adam(1e-3), 2)),
    "injected": (
        "inject_hyperparams(adamax)(cosine_decay_schedule(1e-3, 1000))",
        lambda: optax.inject_hyperparams(optax.adamax)(optax.cosine_decay_schedule(1e-3, 1000)),
    ),
    "partitions": (
        "multi_transform({'a': lars(0.1, momentum=0.9), 'b': set_to_zero()}, {'head': 'a', 'body': 'b'})",
        lambda: optax.multi_transform(
            {"a": optax.lars(0.1, momentum=0.9), "b": optax.set_to_zero()},
            {"head": "a", "body": "b"},
        ),
    ),
}


def after_training(transformation, factor=1.0, steps=5):
    """Params and state after a few steps, had ``head`` been ``factor`` times as large all along."""
    draws = np.random.default_rng(0)
    params = {**PARAMS, "head": PARAMS["head"] * np.float32(factor)}
    state = transformation.init(params)
    for _ in range(steps):
        gradients = jax.tree.map(lambda p: draws.normal(0, 1e-2, p.shape).astype("f4"), PARAMS)
        gradients["head"] /= np.float32(factor)
        _, state = transformation.update(gradients, state, params)
    return {"params": params, "opt_state": state}


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_settles_what_training_with_it_would_have_made(surgery, tmp_path, name):
    text, make = CALLS[name]
    source = save(tmp_path / "source", after_training(make()))

    result = surgery(
        "rescale", source, tmp_path / "new", HEAD, "--by", "3", "--optimizer", "transform",
        "--optimizer-kind", text, "--json",
    )  # fmt: skip

    assert result.code == 0, result.err
    wanted = after_training(make(), 3.0)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", wanted)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7 * np.abs(theirs).max())


OF_SETTINGS = {
    "novograd(0.1)": True,
    "novograd(0.1, weight_decay=0.1)": False,
    "lars(0.1)": True,
    "lars(0.1, weight_decay=0.5)": False,
    "rmsprop(0.1, momentum=0.9, eps=0.1)": True,
}
"""Calls whose powers hold for some settings of the factory alone, and whether they do for these."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text", ["adam(1e-3)", "sgd(1e-3, momentum=0.9)", "lion(1e-3)", "adagrad(1e-3)", "lars(0.1)"]
)
def test_the_call_that_a_refusal_shows_for_a_node_is_taken_as_it_stands(surgery, tmp_path, text):
    source = save(tmp_path / "source", after_training(optimizer_of(text)))
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--dry-run")
    refused = surgery(
        *command,
        "--optimizer-kind",
        "sgd(1e-3, momentum=0.9, nesterov=True)" if "sgd" not in text else "adam(1e-3)",
    )
    assert refused.code == 2

    words = shlex.split(refused.err.rsplit("as in `", 1)[1].split("`")[0])

    assert surgery(*command, *words).code == 0


@pytest.mark.parametrize(
    "text",
    [
        "adam(1e-3, b2=2.0)",
        "adam(1e-3, b2=-0.5)",
        "adam(None)",
        "adam(1e-3, eps=-1.0)",
        "trace(1.5)",
    ],
)
def test_settings_that_train_nothing_are_refused(text):
    with pytest.raises(PlanError, match=r"and `.*` is none"):
        optimizer_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "adafactor(None)",
        "sgd(exponential_decay(0.1, 100, decay_rate=1.5))",
        "adam(0.0, b1=0.0, b2=1.0, eps=0.0)",
    ],
)
def test_settings_that_optax_takes_for_no_rate_or_no_decay_are_taken(text):
    optimizer_of(text)


def test_slots_that_are_kept_are_not_said_to_be_settled(surgery, tmp_path):
    source = save(tmp_path / "source", after_training(contrib.cocob()))
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--dry-run", "--json")

    document = surgery(*command, "--optimizer-kind", "cocob()").document

    assert "are kept as they were" in str(document["notes"])
    assert "settles" not in str(document)


def test_what_a_call_has_no_slots_for_is_no_param_of_it(surgery, tmp_path):
    """As the batch statistics of NNX modules, which stand beside their params."""
    text = "chain(clip_by_global_norm(1.0), adamw(1e-3))"
    tree = after_training(optimizer_of(text))
    tree["params"]["norm"] = {"mean": np.zeros(3, np.float32)}
    source = save(tmp_path / "source", tree)
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--dry-run", "--json")

    document = surgery(*command, "--optimizer-kind", text).document

    assert "settles 4 slots" in str(document["notes"])


def test_a_call_makes_the_random_key_that_a_state_holds(surgery, tmp_path):
    text = "chain(sgd(1e-2, momentum=0.9), add_noise(0.1, 0.55, 0))"
    source = save(tmp_path / "source", after_training(optimizer_of(text)))
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--dry-run")

    assert surgery(*command, "--optimizer-kind", text).code == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", OF_SETTINGS)
def test_what_a_kind_is_known_for_gives_way_to_what_its_settings_show(surgery, tmp_path, text):
    """What training would have made comes of it, or the slots are kept; nothing is assumed that the call says."""
    source = save(tmp_path / "source", after_training(optimizer_of(text)))
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", text)

    document = surgery(*command, "--json").document

    assert not [
        a for a in document["assumptions"] if "of its own" in str(a) or "leaves out" in str(a)
    ]
    wanted = after_training(optimizer_of(text), 3.0)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", wanted)
    agrees = all(
        np.allclose(ours, theirs, rtol=1e-3, atol=1e-7 * np.abs(theirs).max())
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    )
    assert agrees == OF_SETTINGS[text]
    assert agrees or "kept as" in str(document["notes"])


def test_the_record_keeps_what_a_call_settled(surgery, tmp_path):
    transformation = optax.rmsprop(1e-3, initial_scale=1.0, bias_correction=True)
    source = save(tmp_path / "source", after_training(transformation))
    plan = tmp_path / "plan.json"
    edits = [{"op": "rescale", "at": HEAD, "by": 3, "optimizer": "transform"}]
    call = "rmsprop(1e-3, initial_scale=1.0, bias_correction=True)"
    plan.write_text(json.dumps({"optimizer_kind": {"opt_state": call}, "edits": edits}))
    assert surgery("apply", source, tmp_path / "one", plan).code == 0
    plan.write_text(json.dumps({"edits": edits}))

    result = surgery("apply", tmp_path / "one", tmp_path / "two", plan)

    assert result.code == 0, result.err
    wanted = after_training(transformation, 9.0)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "two", wanted)
    nu, wanted_nu = (tree["opt_state"][0].nu["head"] for tree in (found, wanted))
    np.testing.assert_allclose(nu, wanted_nu, rtol=1e-4)


def test_a_call_for_a_part_of_a_chain_is_said_to_have_nothing_before_it(surgery, tmp_path):
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    source = save(tmp_path / "source", after_training(chain))
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--dry-run", "--json")

    (taken,) = surgery(*command, "--optimizer-kind", "opt_state/1=adamw(1e-3)").document[
        "assumptions"
    ]

    assert taken["node"] == "opt_state/1/0"
    assert "nothing before it" in taken["taken_for"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sgd(0.1, momentum=0.9)", "'opt_state' holds 0/count [], 0/mu/body [4, 3]"),
        ("sgd(0.1, momentum=0.9)", "the call makes 0/trace/body [4, 3], 0/trace/head [3, 2]"),
        ("opt_state/7=adam(1e-3)", "there is no node 'opt_state/7'"),
        ("adam('x')", "TypeError"),
    ],
)
def test_a_call_that_does_not_make_the_state_is_refused_with_both_sides(
    surgery, tmp_path, text, why
):
    source = save(tmp_path / "source", after_training(optax.adam(1e-3)))

    result = surgery(
        "rescale", source, tmp_path / "new", HEAD, "--by", "3", "--optimizer-kind", text
    )

    assert result.code == 2
    assert why in result.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adamx(1e-3)", "did you mean `adamax`?"),
        ("adam(1e-3, b3=0.9)", "`adam` has no setting `b3`"),
        ("adam(lerning_rate=1e-3)", "did you mean `learning_rate`?"),
        ("adam()", "missing a required argument: 'learning_rate'"),
        ("adam(1, 2, 3, 4, 5, 6, 7, 8, 9)", "too many positional arguments"),
        ("adam(10**10)", "`10**10` is neither a literal nor a call of optax"),
        ("adam(*[1])", "code is not evaluated"),
        ("adam(**{'b1': 1})", "name every setting"),
        ("__import__('os').system('true')", "`__import__('os').system` is no optimizer"),
        ("adam(1e-3).init(1)", "is no optimizer or schedule"),
        ("os.adam(1e-3)", "`os.adam` is no optimizer"),
        ("(lambda: 1)()", "code is not evaluated"),
        ("[adam for adam in ()](1)", "code is not evaluated"),
        ("adam(__import__('os'))", "`__import__` is no optimizer"),
        ("constant_schedule(1e-3)", "it makes no optimizer"),
        ("chain(adam)", "optax does not take `chain(adam)`"),
        ("adam(learning_rate=1, learning_rate=2)", "`adam` is given `learning_rate` twice"),
        ("adam('1e-3')", "write the number without quotes: `learning_rate=1e-3`"),
        ("inject_hyperparams(adam)", "with its settings: `inject_hyperparams(adam)(1e-3)`"),
        ("inject_hyperparams(adam(1e-3))", "is not a callable object"),
        ("lookahead(adam(1e-3), 5, 0.5)", "say what stands inside, whose state is found by itself: `adam(1e-3)`"),
        ("muon(1e-3, ns_steps=1000000000)", "`ns_steps=1000000000` would take too long to try out"),
        ("chain(clip(1.0), muon(1e-3, (1, 2, 3), 1e99))", "would take too long to try out"),
        ("inject_hyperparams(muon)(1e-3, ns_steps=101)", "100 is the most"),
        ("lbfgs(memory_size=1000000000)", "would take too long to try out"),
        ("adam(1e-3", "it is no Python expression"),
        ("adam(1e-3)\0", "it is no Python expression"),
        ("(" * 50_000 + ")" * 50_000, "100,000 characters"),
        ("(" * 900 + ")" * 900, "it is no Python expression"),
        ("chain(" * 250 + ")" * 250, "it is no Python expression|nested more than"),
        ("chain(" * 60 + ")" * 60, "nested more than"),
        ("adam(" + "-" * 1900 + "1)", "code is not evaluated|it is no Python expression"),
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_a_text_that_is_no_call_of_optax_is_refused_and_never_run(text, said):
    with pytest.raises(PlanError) as refused:
        optimizer_of(text)
    (problem,) = refused.value.problems
    whole = f"{problem.why} {problem.fix}"
    assert any(one in whole for one in said.split("|")), whole
    assert len(problem.what) < 120


LOOPS_NOT = {
    *("accumulation_size", "beta3", "clipping", "consistent_rms", "cooldown", "cosine_kwargs", "decay"),
    *("decay_offset", "decay_rate", "decay_steps", "end_value", "eta", "freeze_mask", "gamma"),
    *("init_estim_sq_dist", "init_value", "k", "key", "l2_norm_clip", "learning_rate", "mask"),
    *("max_consecutive_errors", "max_delta", "max_learning_rate", "max_norm", "min_dim_size_to_factor"),
    *("momentum", "noise_multiplier", "optimism", "patience", "peak_value", "power", "seed"),
    *("print_win_rate_every_n_steps", "slow_step_size", "step_offset", "step_size", "sync_period"),
    *("threshold", "transition_begin", "transition_steps", "update_interval", "update_proj_gap"),
    *("value", "warmup_steps", "weight_decay"),
}  # fmt: skip
"""Settings that may be whole numbers, and were seen to cost nothing with 3 million for each."""


def test_whatever_optax_loops_by_is_bounded():
    """A setting that a new release brings must be looked at: does a trial take longer the higher it is?"""
    whole = set()
    for make in factories().values():
        for one in inspect.signature(make).parameters.values():
            is_whole = isinstance(one.default, int) and not isinstance(one.default, bool)
            is_open = one.default in (None, one.empty) and "numpy.number" in str(one.annotation)
            if (
                is_whole
                or "int" in str(one.annotation).replace("'", " ").split()
                or (is_open and "Callable" not in str(one.annotation))
            ):
                whole.add(one.name)
    unknown = whole - LOOPS_NOT - COUNTS
    if is_older("optax"):
        unknown -= {"alpha"}  # cocob's, of which the default is 100 there
    else:
        assert whole >= COUNTS
    assert unknown == set()


def test_a_name_that_is_no_name_is_refused_at_once(surgery, tmp_path):
    source = save(tmp_path / "source", {"w": np.ones(3, np.float32)})
    result = surgery(
        "rescale", source, tmp_path / "new", "w", "--by", "3", "--optimizer-kind", "x" * 100_000
    )
    assert result.code == 2
    assert "is no optimizer of optax or optax.contrib" in result.err
    assert len(result.err) < 1000


def test_every_factory_that_can_be_named_can_be_called():
    missing = set(FACTORIES) - {"adafactor-without-parameter-scale"} - factories().keys()
    assert not missing or is_older("optax")
    assert {
        "cosine_decay_schedule",
        "chain",
        "MultiSteps",
        "inject_hyperparams",
    } <= factories().keys()


def test_what_the_installed_optax_has_not_yet_is_said_so(surgery, tmp_path, monkeypatch):
    """Releases differ: of what another has it is not said that optax knows nothing of it."""
    source = save(tmp_path / "source", after_training(contrib.adopt(1e-3)))
    command = ("rescale", source, tmp_path / "new", HEAD, "--by", "3", "--optimizer", "transform")
    monkeypatch.delattr(contrib, "adopt")
    factories.cache_clear()

    result = surgery(*command, "--optimizer-kind", "contrib.adopt(1e-3)")
    by_name = surgery(*command, "--optimizer-kind", "adopt")

    factories.cache_clear()
    assert result.code == 2
    assert f"the installed optax {optax.__version__} has no `adopt`" in result.err
    assert "name the factory alone, without its settings" in result.err
    assert by_name.code == 0, by_name.err  # the way that is advised
