"""Kinds of state that are known on neither side: one note for all params, and its advice works as it is typed."""

import re
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from tests.cli.test_donor_slots import params, saved

TX = optax.chain(
    optax.clip(1.0), optax.adamw(1e-3)
)  # of what stands before Adam nothing is on disk


def test_one_note_says_of_both_sides_what_settles_them(surgery, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, donor = (
        saved(tmp_path / name, {"params": params(), "opt_state": TX.init(params())})
        for name in ("run", "donor")
    )
    seen = surgery("replace", run, "new", "params", "--with", donor, "--dry-run")
    (note,) = [line for line in seen.out.splitlines() if "are not taken from" in line]
    assert "4 slots are not taken" in note
    assert "here and there is not known" in note
    assert "--optimizer-kind NAME" in note.partition("of there")[0]

    (copied,) = re.findall(r"`surgery (rescale [^`]*)`, then take them from DST", note)
    words = copied.replace("DST", "said").replace("NAME", "adamw")
    assert surgery(*shlex.split(words)).code == 0
    done = surgery(
        "replace", run, "new", "params", "--with", "said", "--optimizer-kind", "adamw", "--dry-run"
    )
    assert "4 slots come from" in done.out


UNSURE = {
    "adamw behind a clip": TX,
    "lamb behind a clip": optax.chain(optax.clip(1.0), optax.lamb(1e-3)),
    "an average behind adam": optax.chain(optax.adam(1e-3), optax.ema(0.9)),
    "a named chain": optax.named_chain(("adam", optax.scale_by_adam()), ("trust", optax.scale_by_trust_ratio())),
    "gathered": optax.MultiSteps(optax.chain(optax.clip(1.0), optax.rmsprop(1e-3, momentum=0.9)), 2),
}  # fmt: skip


def trained_by(tx, steps=3):
    own, state = params(), tx.init(params())
    for step in range(steps):
        gradients = jax.tree.map(lambda leaf, n=step: jnp.sin(leaf * (n + 1)), own)
        gradients["b"] = jax.tree.map(lambda leaf: leaf - 0.3, gradients["b"])
        updates, state = tx.update(gradients, state, own)
        own = optax.apply_updates(own, updates)
    return {"params": own, "opt_state": state}


@pytest.mark.parametrize("name", UNSURE)
def test_slots_of_the_very_same_checkpoint_are_of_one_kind_whichever_that_is(
    surgery, tmp_path, name
):
    state = trained_by(UNSURE[name])
    run = saved(tmp_path / "run", state)
    words = ("params/a", "--with", run, "--from", "params/b", "--optimizer", "transform")
    done = surgery("replace", run, tmp_path / "new", *words)
    assert done.code == 0, done.err
    assert "assumed" not in done.out
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", state)
    before = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}
    for path, leaf in jax.tree.leaves_with_path(found):
        place = jax.tree_util.keystr(path)
        np.testing.assert_array_equal(leaf, before[place.replace("['a']", "['b']")], place)


def test_a_copy_of_the_checkpoint_may_be_of_another_kind(surgery, tmp_path):
    run, other = (saved(tmp_path / name, trained_by(TX)) for name in ("run", "other"))
    done = surgery(
        "replace", run, tmp_path / "new", "params/a", "--with", other, "--from", "params/b"
    )
    assert "here and there is not known" in done.out


@pytest.mark.parametrize("is_injected", [False, True])
@pytest.mark.parametrize("name", ["yogi", "adamax", "adabelief", "rmsprop"])
def test_a_copy_says_the_kind_of_a_donor_also_where_its_start_is_not_known(
    surgery, tmp_path, name, is_injected
):
    """Of Yogi's slots it is not known what is left of their start: their kind was forgotten with that."""
    make = optax.inject_hyperparams(getattr(optax, name)) if is_injected else getattr(optax, name)
    run, donor = (saved(tmp_path / str(n), trained_by(make(1e-3), n)) for n in (30, 31))
    kind = ("--optimizer-kind", name)
    replaced = ("replace", run, tmp_path / "new", "params/b", *kind, "--json", "--with")
    told = tmp_path / "told"
    assert surgery("rescale", donor, told, "params/a", "--by", "1", *kind).code == 0
    done = surgery(*replaced, told)
    assert any("slots come from" in n or "slot comes from" in n for n in done.document["notes"])
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", trained_by(make(1e-3), 30))
    theirs, seen = jax.tree.leaves_with_path(trained_by(make(1e-3), 31)), 0
    for (path, own), (_, new) in zip(theirs, jax.tree.leaves_with_path(found), strict=True):
        if "['b']" in jax.tree_util.keystr(path):
            np.testing.assert_array_equal(own, new)
            seen += 1
    assert seen > 1
    kept = surgery("rescale", tmp_path / "new", tmp_path / "by", "params/b", "--by", "2", "--json")
    followed = {leaf["policy"] for leaf in kept.document["leaves"] if leaf.get("policy")}
    assert followed == (set() if name == "yogi" else {"transform"})


def test_no_kind_is_asked_for_that_was_given_and_settles_nothing(surgery, tmp_path):
    run = saved(tmp_path / "run", trained_by(optax.yogi(1e-3)))
    words = ("rescale", run, tmp_path / "new", "params/a", "--by", "2", "--dry-run")
    said = surgery(*words, "--optimizer-kind", "yogi").out
    assert "initial_accumulator_value" in said
    assert "--optimizer-kind NAME" not in said


def test_a_plan_says_where_the_donor_stands_and_not_its_own_name_for_it(surgery, tmp_path):
    run, donor = (saved(tmp_path / name, trained_by(TX)) for name in ("run", "donor"))
    plan = tmp_path / "plan.yaml"
    edit = "{op: replace, at: params, with: d}"
    plan.write_text(f"sources: {{d: {donor}}}\noptimizer_kind: adamw\nedits:\n- {edit}\n")
    said = surgery("plan", run, plan).out
    (copied,) = re.findall(r"`surgery (rescale [^`]*)`, then take them from DST", said)
    words = copied.replace("DST", str(tmp_path / "said")).replace("NAME", "adamw")
    assert surgery(*shlex.split(words)).code == 0
    plan.write_text(plan.read_text().replace(f"d: {donor}", f"d: {tmp_path / 'said'}"))
    assert "4 slots come from" in surgery("plan", run, plan).out
