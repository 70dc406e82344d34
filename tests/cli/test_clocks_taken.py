"""What is said of clocks is true of the result: judged by the counts that Orbax restores of it, and by optax."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

HERE, THERE = 50, 20
DONOR = f"after{THERE}"
TX = optax.adamw(optax.cosine_decay_schedule(1e-3, 100))
COUNT, SCHEDULE = "opt_state/0/count", "opt_state/2/count"


def trained(steps):
    """A run after so many steps, all of whose slots are numbers of their own."""
    made = {"a": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4), "b": jnp.full(3, 0.5)}
    state = TX.init(made)
    update = jax.jit(TX.update)
    for n in range(steps):
        grads = jax.tree.map(lambda p, n=n: jnp.cos(p * n) + steps / 100, made)
        updates, state = update(grads, state, made)
        made = optax.apply_updates(made, updates)
    return {"params": made, "opt_state": state, "step": jnp.asarray(steps)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for steps in (HERE, THERE):
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / f"after{steps}", trained(steps))
    return folder


def taking(*at, **more):
    return {"op": "replace", "at": list(at), "with": DONOR, **more}


def setting(path, number):
    return {"op": "set", "at": path, "to": number}


SLOTS = taking("opt_state/0/{mu,nu}/**")
FROM_NOTHING = {"op": "delete", "at": "opt_state"}
EDITS = {
    "the whole state": [taking("opt_state")],
    "merged": [{"op": "merge", "at": "opt_state", "with": DONOR, "both": "theirs"}],
    "slots with their clock": [taking("opt_state/0")],
    "everything": [taking("**", twins="named")],
    "slots, then the clock is set": [SLOTS, setting(COUNT, THERE)],
    "the clock is set, then slots": [setting(COUNT, THERE), SLOTS],
    "with the clock, and it is set": [taking("opt_state/0"), setting(COUNT, THERE)],
    "slots, then another count is set": [SLOTS, setting(COUNT, 35)],
    "slots, then their clock": [SLOTS, taking(COUNT)],
    "slots alone": [SLOTS],
    "the clock alone": [taking(COUNT)],
    "the schedule alone": [taking(SCHEDULE)],
    "the step alone": [taking("step")],
    "state and step": [taking("opt_state", "step")],
    "state, and the step is set": [taking("opt_state"), setting("step", THERE)],
    "state, and the schedule is set": [taking("opt_state"), setting(SCHEDULE, HERE)],
    "averaged": [{"op": "average", "at": "opt_state", "with": DONOR, "integers": True}],
    "averaged without counts": [
        {"op": "average", "at": "opt_state", "with": DONOR, "where_dtype": "floating"}
    ],
    "inserted anew": [
        FROM_NOTHING,
        {"op": "insert-item", "at": "opt_state", "with": DONOR, "from": "opt_state"},
    ],
    "added anew": [FROM_NOTHING, {"op": "add", "at": "opt_state", "with": DONOR}],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_what_is_said_of_clocks_is_true_of_what_orbax_restores(surgery, runs, tmp_path, edits):
    plan = runs / f"{tmp_path.name}.json"
    plan.write_text(json.dumps({"edits": edits}))
    done = surgery("apply", runs / f"after{HERE}", tmp_path / "new", plan, "--json")
    assert done.code == 0, done.document
    with ocp.StandardCheckpointer() as checkpointer:
        result = checkpointer.restore(tmp_path / "new", trained(0))
    count, schedule = int(result["opt_state"][0].count), int(result["opt_state"][2].count)
    step, notes = int(result["step"]), done.document["notes"]

    every = {steps: jax.tree.leaves(trained(steps)["opt_state"][0].nu) for steps in (HERE, THERE)}
    squares = jax.tree.leaves(result["opt_state"][0].nu)
    of = [steps for steps in every if all(map(np.array_equal, squares, every[steps]))]
    fits = of == [count]
    about = [note for note in notes if re.search(rf"'{COUNT}'.*( it |steps|goes from)", note)]
    about = [note for note in about if "averaged" not in note and SCHEDULE not in note]
    assert bool(about) != fits, about
    for note in about:
        assert all(int(said) == count for said in re.findall(r"(?:stays at|becomes) (\d+)", note))
        assert not re.search(r"leave it|`params` alone", note) or of != [THERE]

    parted = [note for note in notes if "stands at" in note and "here; where a schedule" in note]
    is_mean = "average" in {edit["op"] for edit in edits}
    assert bool(parted) == (schedule != step and not is_mean), notes
    for note in parted:
        (there, here) = map(int, re.findall(r"stands at (\d+) there, and at (\d+) here", note)[0])
        assert there == THERE
        assert here in (schedule, step)
