"""Slots of a donor that go by a setting which one side alone has on disk, judged by the steps that optax takes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

STEPS = 31
GRADIENT = 1e-3


def gradients(params):
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, GRADIENT), params)


def trained(tx):
    """A state after steps under gradients that stay the same, so that their sizes follow from decays alone."""
    params = {name: {"w": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)} for name in "ab"}
    state = tx.init(params)
    for _ in range(STEPS):
        _, state = tx.update(gradients(params), state, params)
    return {"params": params, "opt_state": state}


def step_of_b(tx, state):
    updates, _ = tx.update(gradients(state["params"]), state["opt_state"], state["params"])
    return float(np.linalg.norm(updates["b"]["w"]))


def saved(path, state):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return path


def grafted(surgery, tmp_path, here, there, *options):
    """Layer b of a donor in a run; ``there`` is None where the donor is there already."""
    run, donor = saved(tmp_path / "run", here), tmp_path / "donor"
    if there is not None:
        saved(donor, there)
    words = ("replace", run, tmp_path / "new", "params/b", "--with", donor, *options)
    done = surgery(*words, "--json")
    (notes,) = [[n for n in done.document["notes"] if " slot" in n and f"'{donor}'" in n]]
    policies = {leaf["policy"] for leaf in done.document["leaves"] if leaf.get("policy")}
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(tmp_path / "new", jax.tree.map(np.asarray, here))
    return " ".join(notes), policies, state


PLAIN = {"adam": optax.adam, "rmsprop": optax.rmsprop, "sgd": optax.sgd}
SETTINGS = [
    ("adam", "b2", 0.9),
    ("adam", "b2", 0.95),
    ("adam", "b1", 0.5),
    ("adam", "b1", 0.99),
    ("rmsprop", "decay", 0.5),
]


def both(name, **settings):
    """The optimizer whose settings are on disk, and the plain one with optax's defaults."""
    return optax.inject_hyperparams(PLAIN[name])(1e-2, **settings), PLAIN[name](1e-2)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(("name", "setting", "value"), SETTINGS)
def test_what_the_other_side_has_is_said_not_to_be_known(
    surgery, tmp_path, name, setting, value, is_there
):
    stored, plain = both(name, **{setting: value})
    there, here = (stored, plain) if is_there else (plain, stored)
    note, policies, state = grafted(surgery, tmp_path, trained(here), trained(there))
    assert policies == {"donor"}
    sides = ("there", "here") if is_there else ("here", "there")
    assert f"hyperparams/{setting}', by which they go, is {value:g} {sides[0]}" in note
    assert f"what {setting} is {sides[1]} is not on disk" in note
    assert "`--optimizer warm` or `reset` restarts them" in note
    ratio = step_of_b(here, state) / step_of_b(there, trained(there))
    told = re.search(r"next steps are (\S+) times as large", note)
    if told is not None:
        np.testing.assert_allclose(float(told[1]), ratio, rtol=0.06)
    elif name == "adam":
        assert 1 / 1.15 < ratio < 1.15


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("factory", ["adam", "nadam", "radam", "lamb"])
def test_steps_under_another_decay_are_told_of_those_that_take_them(
    surgery, tmp_path, factory, is_named, is_there
):
    """Adam's formula was used for RAdam and LAMB: 0.18 where they took 0.02 and 1.0."""
    make = getattr(optax, factory)
    stored, plain = optax.inject_hyperparams(make)(1e-2, b2=0.9), make(1e-2)
    there, here = (stored, plain) if is_there else (plain, stored)
    options = ("--optimizer-kind", factory) if is_named else ()
    note, _, state = grafted(surgery, tmp_path, trained(here), trained(there), *options)
    told = re.search(r"(if it is Adam, )?the next steps are (\S+) times as large", note)
    if not is_named:
        assert told[1]
    elif factory != "adam":
        assert told is None
    else:
        ratio = step_of_b(here, state) / step_of_b(there, trained(there))
        assert not told[1]
        np.testing.assert_allclose(float(told[2]), ratio, rtol=0.06)


def test_of_what_may_be_the_default_of_another_kind_no_default_is_said(surgery, tmp_path):
    """AdaBelief's own `eps_root` was said to differ from the default of optax, which was Adam's."""
    stored = optax.inject_hyperparams(optax.adabelief)(1e-2, b2=0.99)
    note, _, _ = grafted(surgery, tmp_path, trained(optax.adabelief(1e-2)), trained(stored))
    assert "default of optax" not in re.search(r"'\S*eps_root'[^;]*", note)[0]


def test_what_steps_alone_go_by_is_nothing_by_which_slots_go(surgery, tmp_path):
    here, there = (optax.inject_hyperparams(optax.adam)(1e-2, eps=eps) for eps in (1e-8, 1e-3))
    note, policies, _ = grafted(surgery, tmp_path, trained(here), trained(there))
    assert policies == {"donor"}
    assert "hyperparams/eps' is 0.001 there and 1e-08 here" in note


@pytest.mark.parametrize("is_there", [True, False])
def test_a_setting_without_a_default_is_said_as_well(surgery, tmp_path, is_there):
    stored = optax.inject_hyperparams(optax.sgd)(1e-2, momentum=0.5)
    there, here = (stored, optax.sgd(1e-2, 0.9)) if is_there else (optax.sgd(1e-2, 0.9), stored)
    note, policies, _ = grafted(surgery, tmp_path, trained(here), trained(there))
    assert policies == {"donor"}
    assert f"momentum', by which they go, is 0.5 {'there' if is_there else 'here'}" in note


def settled(surgery, tmp_path, here, there, *options):
    """The slots are taken without a word, and the next step is the donor's."""
    note, policies, state = grafted(surgery, tmp_path, trained(here), trained(there), *options)
    assert policies == {"donor"}
    assert "by which they go" not in note
    np.testing.assert_allclose(step_of_b(here, state), step_of_b(there, trained(there)), rtol=1e-5)


def test_a_default_is_no_word_worth(surgery, tmp_path):
    stored, plain = both("adam", b1=0.9, b2=0.999)
    settled(surgery, tmp_path, plain, stored)


@pytest.mark.parametrize("setting", ["b1", "b2"])
def test_a_call_that_is_told_and_tried_out_settles_it(surgery, tmp_path, setting):
    stored, _ = both("adam", **{setting: 0.8})
    call = ("--optimizer-kind", f"adam(1e-2, {setting}=0.8)")
    settled(surgery, tmp_path, optax.adam(1e-2, **{setting: 0.8}), stored, *call)


@pytest.mark.parametrize("setting", ["b1", "b2"])
def test_a_call_that_shows_another_decay_lets_them_restart(surgery, tmp_path, setting):
    stored, plain = both("adam", **{setting: 0.8})
    call = ("--optimizer-kind", "adam(1e-2)")
    note, policies, _ = grafted(surgery, tmp_path, trained(plain), trained(stored), *call)
    assert policies == {"warm"}
    assert f"{setting}', by which they go, is 0.8 there" in note
    assert f"the optimizer that was tried out here has {setting} = 0.9" in note


@pytest.mark.parametrize("is_there", [True, False])
def test_under_another_count_no_size_of_steps_is_told_by_settings_that_one_side_has_not(
    surgery, tmp_path, is_there
):
    """It was told by the usual decays, though the donor's own stood on its disk: 1.6 times, where optax took 0.18."""
    stored, plain = both("adam", b2=0.9)
    there, here = (stored, plain) if is_there else (plain, stored)
    fewer = trained(here)
    fewer["opt_state"] = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 400 if "count" in jax.tree_util.keystr(path) else leaf,
        fewer["opt_state"],
    )
    note, policies, _ = grafted(surgery, tmp_path, fewer, trained(there))
    assert "donor" not in policies
    assert "it has counted 31 there" in note
    assert "times as large" not in note
    assert "nor is it known that both go by the same settings" in note


AFTER_THE_SLOTS = [
    ("adam", "eps", 1.0, 1e-8),
    ("adam", "eps_root", 1e-2, 0.0),
    ("adamw", "eps", 1.0, 1e-8),
    ("adamw", "weight_decay", 0.5, 1e-4),
    ("rmsprop", "eps", 1.0, 1e-8),
    ("adagrad", "eps", 1.0, 1e-7),
    ("lion", "weight_decay", 0.5, 1e-3),
]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(("name", "setting", "value", "usual"), AFTER_THE_SLOTS)
def test_a_setting_that_changes_steps_after_the_slots_is_said(
    surgery, tmp_path, name, setting, value, usual, is_there
):
    make = getattr(optax, name)
    stored, plain = optax.inject_hyperparams(make)(1e-2, **{setting: value}), make(1e-2)
    there, here = (stored, plain) if is_there else (plain, stored)
    kind = ("--optimizer-kind", name)
    copied(surgery, tmp_path, trained(there), *kind)
    note, policies, state = grafted(surgery, tmp_path, trained(here), None, *kind)
    assert policies == {"donor"}
    sides = ("there", "here") if is_there else ("here", "there")
    assert f"hyperparams/{setting}' is {value:g} {sides[0]}, and what {setting} is" in note
    assert f"with {usual:g} {sides[1]}, the default of optax" in note
    assert "restarts them instead" not in note  # new slots would meet it as well
    assert step_of_b(here, state) != pytest.approx(step_of_b(there, trained(there)), rel=1e-2)


def copied(surgery, tmp_path, state, *kind):
    """A copy of a donor whose record says its kind."""
    saved(tmp_path / "unsaid", state)
    words = ("rescale", tmp_path / "unsaid", tmp_path / "donor", "params/a", "--by", "1")
    assert surgery(*words, *kind).code == 0


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "radam", "lamb", "rmsprop", "lion"])
@pytest.mark.parametrize("is_there", [True, False])
def test_no_setting_that_has_the_default_of_its_factory_is_said(surgery, tmp_path, name, is_there):
    make = getattr(optax, name)
    stored, plain = optax.inject_hyperparams(make)(1e-2), make(1e-2)
    there, here = (stored, plain) if is_there else (plain, stored)
    kind = ("--optimizer-kind", name)
    copied(surgery, tmp_path, trained(there), *kind)
    note, policies, state = grafted(surgery, tmp_path, trained(here), None, *kind)
    assert policies == {"donor"}
    assert "hyperparams" not in note
    np.testing.assert_allclose(step_of_b(here, state), step_of_b(there, trained(there)), rtol=1e-3)


def test_adafactors_clip_at_its_default_is_not_said(surgery, tmp_path):
    stored = optax.inject_hyperparams(optax.adafactor, static_args=("dtype_momentum",))(1e-2)
    note, policies, _ = grafted(surgery, tmp_path, trained(optax.adafactor(1e-2)), trained(stored))
    assert policies == {"donor"}
    assert "clipping_threshold" not in note


def test_of_counts_and_of_settings_that_are_known_to_differ_it_is_said_that_they_do(
    surgery, tmp_path
):
    """ "nor is it known that both go by the same settings" stood there, beside 0.9 and 0.999 on both disks."""
    here, there = (optax.inject_hyperparams(optax.adam)(1e-2, b2=b2) for b2 in (0.999, 0.9))
    fewer = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 400 if "count" in jax.tree_util.keystr(path) else leaf,
        trained(here),
    )
    note, policies, _ = grafted(surgery, tmp_path, fewer, trained(there))
    assert "donor" not in policies
    assert "it has counted 31 there" in note
    assert "hyperparams/b2', by which they go, is 0.9 there and 0.999 here" in note
    assert "nor is it known" not in note
    assert "times as large" not in note
