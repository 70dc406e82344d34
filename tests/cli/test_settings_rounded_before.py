"""Settings that an earlier run rounded stay rounded in a wider dtype, which the record alone can tell."""

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

B1 = "opt_state/hyperparams/b1"
SAID = "does not bring back what rounding took"


@pytest.fixture
def source(tmp_path):
    params = {"w": jnp.ones((3, 4))}
    tx = optax.inject_hyperparams(optax.adamw)(1e-2, b1=0.9, b2=0.75)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": tx.init(params)})
    return tmp_path / "a"


def restored(folder):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(folder)


def said(done):
    return [note for note in done.document["notes"] if SAID in note]


def cast(surgery, source, name, dtype, *more):
    goal = source.with_name(name)
    return goal, surgery("cast", source, goal, "--to", dtype, *more, "--json")


def test_a_cast_back_names_what_the_record_says_was_cast(surgery, source):
    narrow, first = cast(surgery, source, "b", "bfloat16")
    assert not said(first)
    wide, done = cast(surgery, narrow, "c", "float32")
    (note,) = said(done)
    assert f"'{B1}'" in note
    assert "to bfloat16" in note
    assert "`set` them" in note
    np.testing.assert_allclose(restored(wide)["opt_state"]["hyperparams"]["b1"], 0.8984375)


def test_it_is_found_behind_other_edits(surgery, source):
    narrow, _ = cast(surgery, source, "b", "bfloat16")
    moved = source.with_name("c")
    surgery("rename", narrow, moved, "opt_state", "--to", "optimizer")
    (note,) = said(cast(surgery, moved, "d", "float32")[1])
    assert "'optimizer/hyperparams/b1'" in note


def test_nothing_is_said_of_what_was_set_since_left_out_or_never_cast(surgery, source):
    assert not said(cast(surgery, source, "wide", "float64")[1])
    kept, _ = cast(surgery, source, "b", "bfloat16", "--except", "opt_state/hyperparams")
    assert not said(cast(surgery, kept, "c", "float32")[1])
    narrow, _ = cast(surgery, source, "d", "bfloat16", B1)
    anew = source.with_name("e")
    surgery("set", narrow, anew, B1, "--to", "0.875")
    assert not said(cast(surgery, anew, "f", "float32")[1])


def test_nothing_is_guessed_without_a_record(surgery, source):
    narrow, _ = cast(surgery, source, "b", "bfloat16")
    (narrow / "surgery.json").unlink()
    assert not said(cast(surgery, narrow, "c", "float32")[1])
