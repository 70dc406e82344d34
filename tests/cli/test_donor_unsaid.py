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
