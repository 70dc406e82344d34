"""The commands that look at and change the optimizer's own numbers, on checkpoints written by Orbax."""

from __future__ import annotations

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

PARAMS = {"a": {"b": np.ones(4, np.float32), "w": np.ones((3, 4), np.float32)}}


def transformation():
    schedule = optax.cosine_decay_schedule(0.1, 100)
    inner = optax.inject_hyperparams(optax.adamw)(learning_rate=schedule)
    return optax.MultiSteps(optax.chain(optax.clip_by_global_norm(1.0), inner), 3)


@pytest.fixture
def saved(tmp_path):
    """A TrainState-like tree with an injected learning rate, accumulation, and a step that is a Python integer."""
    tree = {"params": PARAMS, "opt_state": transformation().init(PARAMS), "step": 12345}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", tree)
    return tmp_path / "saved"


def test_inspect_names_every_counter_and_learning_rate_with_its_value_and_purpose(surgery, saved):
    inner = "opt_state/inner_opt_state/1"

    lines = surgery("inspect", saved, "--optimizer").out.splitlines()
    start = lines.index("step counters and learning rates") + 1
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[start:]}

    assert shown["step"] == "12,345 drives nothing in the optimizer"
    assert shown["opt_state/mini_step"] == "0 drives the place in a cycle of 2 slots"
    assert shown["opt_state/gradient_step"] == "0 drives a schedule"
    assert shown[f"{inner}/count"] == "0 drives nothing in the optimizer"
    assert shown[f"{inner}/hyperparams/learning_rate"] == "0.1 learning rate"
    assert shown[f"{inner}/hyperparams_states/learning_rate/count"] == "0 drives a schedule"
    driven = "0 drives the bias correction of 4 slots"
    assert shown[f"{inner}/inner_state/0/count"] == driven


def test_inspect_says_which_states_keep_slots_and_what_would_settle_their_kind(surgery, saved):
    document = surgery("inspect", saved, "--optimizer", "--json").document

    states = {state["path"]: state for state in document["optimizer"]}
    assert states["opt_state"]["slots"] == {"acc_grads": 2}
    adam = states["opt_state/inner_opt_state/1/inner_state/0"]
    assert (adam["family"], adam["slots"]) == ("adam-family", {"mu": 2, "nu": 2})
    assert "optimizer_kind" in adam["unsure"]
    rows = {row["path"]: row for row in document["leaves"]}
    assert rows["opt_state/inner_opt_state/1/inner_state/0/count"]["drives"] == 4
    assert rows["opt_state/inner_opt_state/1/hyperparams/b1"]["hyperparameter"] == "b1"


def test_inspect_says_where_no_learning_rate_and_no_state_is_stored(surgery, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "bare", {"params": PARAMS})

    out = surgery("inspect", tmp_path / "bare", "--optimizer").out

    assert "optimizer state\n  none\n" in out
    assert "no learning rate is stored: the training script sets it" in out
    document = surgery("inspect", tmp_path / "bare", "--optimizer", "--json").document
    assert document["optimizer"] == []


def test_inspect_says_where_params_are_missing_beside_the_optimizer_state(surgery, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "alone", {"opt_state": optax.adam(0.1).init(PARAMS)})

    out = surgery("inspect", tmp_path / "alone", "--optimizer").out

    assert "slots are not known: no params stand beside them" in out
    assert "opt_state/0/count  0  drives the bias correction\n" in out


def restored(path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def test_set_changes_a_python_number_and_a_hyperparameter_exactly(surgery, saved, tmp_path):
    rate = "opt_state/inner_opt_state/1/hyperparams/weight_decay"
    first, second = tmp_path / "first", tmp_path / "second"

    assert surgery("set", saved, first, "step", "--to", "9007199254740993").code == 0
    assert surgery("set", first, second, rate, "--to", "0.05").code == 0

    tree = restored(second)
    assert tree["step"] == 9007199254740993
    hyperparams = tree["opt_state"]["inner_opt_state"][1]["hyperparams"]
    assert hyperparams["weight_decay"] == np.float32(0.05)
    assert hyperparams["b1"] == np.float32(0.9)


def test_a_number_that_a_schedule_gives_is_not_set_and_the_count_to_set_is_named(
    surgery, saved, tmp_path
):
    inner = "opt_state/inner_opt_state/1"
    rate, count = (
        f"{inner}/hyperparams/learning_rate",
        f"{inner}/hyperparams_states/learning_rate/count",
    )

    result = surgery("set", saved, tmp_path / "new", rate, "--to", "1e-5")

    assert result.code == 2
    assert f"'{rate}' would be overwritten at the next step" in result.err
    assert f"set '{count}', its step count, instead" in result.err
    assert surgery("set", saved, tmp_path / "new", count, "--to", "50").code == 0


DRAWN_TOGETHER = """\
edits:
- {op: reinit, at: params/a/w, init: lecun_normal}
- {op: delete, at: ema/a/w}
- {op: copy, at: params/a/w, to: ema/a/w}
"""


def test_an_average_gets_the_values_that_its_params_drew(surgery, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        state = {"params": PARAMS, "ema": PARAMS, "opt_state": transformation().init(PARAMS)}
        checkpointer.save(tmp_path / "saved", state)
    (tmp_path / "plan.yaml").write_text(DRAWN_TOGETHER)

    plan = tmp_path / "plan.yaml"
    result = surgery("apply", tmp_path / "saved", tmp_path / "new", plan, "--json")

    assert result.code == 0
    assert any("`delete` 'ema/a/w' and `copy` 'params/a/w'" in n for n in result.document["notes"])
    tree = restored(tmp_path / "new")
    assert np.std(tree["params"]["a"]["w"]) > 0
    np.testing.assert_array_equal(tree["ema"]["a"]["w"], tree["params"]["a"]["w"])
    np.testing.assert_array_equal(tree["ema"]["a"]["b"], np.ones(4))


def test_a_count_is_not_set_back_alone(surgery, saved, tmp_path):
    count = "opt_state/inner_opt_state/1/inner_state/0/count"

    result = surgery("set", saved, tmp_path / "new", count, "--to", "0")

    assert result.code == 2
    assert "would start anew" in result.err
    assert "`--optimizer warm`" in result.err
    assert not (tmp_path / "new").exists()


def test_a_reset_under_a_running_count_is_announced_with_its_factor(surgery, checkpoint, tmp_path):
    result = surgery("reset-optimizer", checkpoint, tmp_path / "new", "--dry-run", "--json")

    (note,) = [note for note in result.document["notes"] if "restart" in note]
    assert "'opt_state/0/count' is at 500" in note
    assert "up to 4.2 learning rates large (step 12" in note
    rows = surgery("inspect", checkpoint, "--json").document["leaves"]
    moments = sum(row["bytes"] for row in rows if row.get("slot"))
    assert result.document["bytes_read"] == 4 + moments


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("set", "opt_state/0/count", "--to", "10"), "goes from 500 to 10 while"),
        (("replace", "opt_state/0/nu", "--with", "0"), "with squares become 0 while"),
        (("rescale", "opt_state/0/nu", "--by", "1e-6"), "with squares shrink to 1e-06 of"),
    ],
)
def test_what_an_edit_by_name_does_to_the_next_steps_is_announced(
    surgery, checkpoint, tmp_path, edit, said
):
    name, *rest = edit
    result = surgery(name, checkpoint, tmp_path / "new", *rest, "--dry-run", "--json")

    assert result.code == 0
    (note,) = [note for note in result.document["notes"] if "the next steps there are" in note]
    assert said in note
    assert result.document["bytes_read"] >= 4


def test_the_whole_optimizer_starts_anew_with_its_clocks(surgery, checkpoint, tmp_path):
    new = tmp_path / "new"

    result = surgery("reset-optimizer", checkpoint, new, "--clocks", "--json")

    assert result.code == 0
    assert not [note for note in result.document["notes"] if "restart" in note]
    tree = restored(new / "500" / "default")
    adam = tree["opt_state"][0]
    assert adam["count"] == 0
    assert not any(np.any(leaf) for layer in adam["nu"].values() for leaf in layer.values())
    assert tree["step"] == 500
